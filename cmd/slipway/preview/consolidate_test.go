// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/test/builder"
)

// machine is a node of pool general that was bought and is in use.
func machine(name, kind string) []client.Object {
	claim := builder.NodeClaim(name).UID("uid-"+name).Pool("general").Launched("aws:///us-east-1a/i-"+name, kind, "us-east-1a", karpv1.CapacityTypeOnDemand).
		Registered(name).Initialized().Created(builder.Epoch())
	size := map[string][2]string{"m5.xlarge": {"4", "16Gi"}, "m5.4xlarge": {"16", "64Gi"}, "z9.huge": {"4", "16Gi"}}[kind]
	return []client.Object{claim.Obj(), builder.Node(name).Pool("general").CPU(size[0]).Memory(size[1]).InstanceType(kind).Zone("us-east-1a").
		CapacityType(karpv1.CapacityTypeOnDemand).ProviderID("aws:///us-east-1a/i-"+name).Label(karpv1.NodeInitializedLabelKey, "true").Obj()}
}

func on(node, pod, cpu string) *builder.PodBuilder {
	return builder.Pod(pod).UID(pod).CPU(cpu).Memory("1Gi").On(node).Phase(corev1.PodRunning)
}

func general() *builder.NodePoolBuilder {
	return builder.NodePool("general").Ready().Consolidate(karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized, "0s").
		Require(corev1.NodeSelectorRequirement{Key: "karpenter.k8s.aws/instance-family", Operator: corev1.NodeSelectorOpIn, Values: []string{"m5"}}).
		Require(corev1.NodeSelectorRequirement{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{karpv1.CapacityTypeOnDemand}})
}

func offline(t *testing.T) *Market {
	t.Helper()
	m, err := Offline(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func consolidate(t *testing.T, m *Market, objects ...client.Object) *Consolidation {
	t.Helper()
	in, err := ReadRunning(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.ReadCluster(t.Context(), cluster(objects...), true); err != nil {
		t.Fatal(err)
	}
	c, err := Consolidate(t.Context(), in, m, builder.Epoch().Add(48*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// summary is what a test compares: what goes with what is bought, and why the rest stays.
func summary(c *Consolidation) (commands, stays []string) {
	for _, m := range c.Commands {
		for _, n := range m.Nodes {
			commands = append(commands, fmt.Sprintf("%s %s %s: %s, saves %.3f", m.Reason, m.Decision, n.Node, boughtBy(&m), m.Saving))
		}
	}
	for _, s := range c.Stays {
		stays = append(stays, s.Node+": "+s.Why)
	}
	return commands, stays
}

func TestConsolidate(t *testing.T) {
	class := builder.EC2NodeClass(builder.DefaultClass).Ready().Obj()
	flat := func(lists ...[]client.Object) []client.Object {
		out := []client.Object{class}
		for _, l := range lists {
			out = append(out, l...)
		}
		return out
	}
	all := general().Budget("100%").Obj()
	tests := map[string]struct {
		objects  []client.Object
		commands []string
		stays    []string
	}{
		"empty": {
			flat([]client.Object{all}, machine("a", "m5.xlarge")), []string{"Empty delete a: -, saves 0.192"}, nil,
		},
		"room elsewhere": {
			flat([]client.Object{all}, machine("a", "m5.4xlarge"), machine("b", "m5.xlarge"), []client.Object{on("a", "large", "12").Obj(), on("b", "small", "1").Obj()}),
			[]string{"Underutilized delete b: -, saves 0.192"},
			[]string{"a: Node takes the pods of nodes that are going"},
		},
		"too large": {
			flat([]client.Object{all}, machine("a", "m5.4xlarge"), []client.Object{on("a", "small", "1").Obj()}),
			[]string{"Underutilized replace a: m5.large us-east-1a on-demand 0.0960, saves 0.672"},
			nil,
		},
		"budget": {
			flat([]client.Object{general().Budget("0").Obj()}, machine("a", "m5.xlarge")),
			nil,
			[]string{"a: No allowed disruptions for disruption reason Empty due to blocking budget"},
		},
		"blocked by a pod": {
			flat([]client.Object{all}, machine("a", "m5.4xlarge"), []client.Object{on("a", "small", "1").Annotation(karpv1.DoNotDisruptAnnotationKey, "true").Obj()}),
			nil,
			[]string{`a: Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=default/small)`},
		},
		"not yet": {
			flat([]client.Object{general().Consolidate(karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized, "72h").Budget("100%").Obj()}, machine("a", "m5.xlarge")),
			nil,
			[]string{`a: consolidateAfter of NodePool "general" passes in 24h0m0s`},
		},
		"wanted": {
			flat([]client.Object{all}, machine("a", "m5.xlarge"), []client.Object{builder.Pod("waits").UID("waits").CPU("1").Memory("1Gi").Obj()}),
			nil,
			[]string{"a: Node has room for a pending pod (Pod=default/waits)"},
		},
		"type not sold any more": {
			flat([]client.Object{all}, machine("a", "z9.huge"), []client.Object{on("a", "small", "1").Obj()}),
			[]string{"Drifted replace a: m5.large us-east-1a on-demand 0.0960, saves 0.000"},
			nil,
		},
	}
	market := offline(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := consolidate(t, market, tt.objects...)
			commands, stays := summary(c)
			if diff := cmp.Diff(tt.commands, commands); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.stays, stays); diff != "" {
				t.Errorf("nodes that stay (-want +got):\n%s", diff)
			}
			if len(c.Stays)+goingOf(c) != c.Nodes {
				t.Errorf("of %d nodes %d go and %d stay", c.Nodes, goingOf(c), len(c.Stays))
			}
		})
	}
}

func goingOf(c *Consolidation) int {
	n := 0
	for _, m := range c.Commands {
		n += len(m.Nodes)
	}
	return n
}

// What a budget holds back is said in sum.
func TestConsolidateBeyondBudgets(t *testing.T) {
	objects := []client.Object{builder.EC2NodeClass(builder.DefaultClass).Ready().Obj(), general().Budget("1").Obj()}
	for _, name := range []string{"a", "b", "c"} {
		objects = append(objects, machine(name, "m5.xlarge")...)
	}
	c := consolidate(t, offline(t), objects...)
	var out strings.Builder
	if err := c.Write(&out, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"3 nodes cost $0.5760 an hour. Disruption would begin with 1 of them, which saves $0.1920 an hour ($140 a month), 33 %.",
		"Without disruption budgets it would begin with 3, which saves $0.5760 an hour.",
		"2  No allowed disruptions for disruption reason Empty due to blocking budget: b, c",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it says\n%s\nwant %q in it", &out, want)
		}
	}
}

// A dump of kubectl's is enough; nodes without claims count, workloads and pods that have ended do not.
func TestReadRunning(t *testing.T) {
	dir := write(t, map[string]string{"dump.yaml": pool + `
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: n1, creationTimestamp: "2026-01-01T00:00:00Z", labels: {karpenter.sh/nodepool: general, node.kubernetes.io/instance-type: m5.4xlarge, topology.kubernetes.io/zone: us-east-1a, karpenter.sh/capacity-type: on-demand, kubernetes.io/hostname: n1}}
  status: {capacity: {cpu: "16", memory: 64Gi, pods: "200"}, allocatable: {cpu: 15800m, memory: 60Gi, pods: "200"}}
- apiVersion: v1
  kind: Pod
  metadata: {name: web, namespace: shop, uid: u1}
  spec: {nodeName: n1, containers: [{name: c, resources: {requests: {cpu: "1", memory: 1Gi}}}]}
  status: {phase: Running}
- apiVersion: v1
  kind: Pod
  metadata: {name: done, namespace: shop, uid: u2}
  spec: {nodeName: n1, containers: [{name: c}]}
  status: {phase: Succeeded}
` + "---" + workload("3", "1", "")})
	in, err := ReadRunning([]string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"n1"}, in.StoodIn); diff != "" {
		t.Errorf("nodes that were given a claim (-want +got):\n%s", diff)
	}
	if in.Ignored["Deployment"] != 1 || len(in.Pods) != 0 || in.Region() != "us-east-1" {
		t.Errorf("ignored %v, pods %v, region %q", in.Ignored, in.Pods, in.Region())
	}
	c, err := Consolidate(t.Context(), in, offline(t), time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	commands, _ := summary(c)
	if diff := cmp.Diff([]string{"Underutilized replace n1: m5.large us-east-1a on-demand 0.0960, saves 0.672"}, commands); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}
