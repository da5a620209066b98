// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package fidelity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/hypothesis"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/fidelity/judge"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

// problem is a generated cluster with pools and pods that want a place.
type problem struct {
	core      []runtime.Object // of Kubernetes' own kinds
	karpenter []runtime.Object
	pending   []*corev1.Pod
	inFlight  bool // only nodes on their way may be used, as in a scheduler that has just refused all others
}

// problem draws a cluster of up to five nodes with pods, one to three pools, daemonsets, claims on their way, and up to
// five kinds of pods in up to nine copies each.
func (m *maker) problem() problem {
	var p problem
	w := m.several()
	for _, ns := range namespaces() {
		p.core = append(p.core, ns)
	}
	p.core = append(p.core, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, Labels: map[string]string{"env": "none"}}})
	for _, n := range w.nodes {
		p.core = append(p.core, n)
	}
	for _, b := range w.bound {
		p.core = append(p.core, b)
	}
	for i := range m.IntN(3) {
		p.core = append(p.core, m.daemonSet(i))
	}
	pools := 1 + m.IntN(3)
	for i := range pools {
		p.karpenter = append(p.karpenter, m.nodePool(i))
	}
	for i := range m.IntN(3) {
		c := builder.NodeClaim(fmt.Sprintf("claim-%d", i)).UID(fmt.Sprintf("claim-%d", i)).Pool(fmt.Sprintf("pool-%d", m.IntN(pools))).Request(corev1.ResourceCPU, "1")
		if !m.one(4) {
			c.Require(builder.In(corev1.LabelInstanceTypeStable, pick(m, "small.1", "big.1"), "big.1"))
		}
		if m.one(2) {
			c.Require(builder.In(corev1.LabelTopologyZone, pick(m, "a", "b")))
		}
		p.karpenter = append(p.karpenter, c.Obj())
	}
	p.karpenter = append(p.karpenter, builder.EC2NodeClass(builder.DefaultClass).Ready().Obj())
	for c := range 1 + m.IntN(5) {
		pod := m.several().pod
		pod.Spec.Priority = new(int32(m.IntN(2)))
		m.likes(pod)
		for r := range 1 + m.IntN(9) {
			q := pod.DeepCopy()
			q.Name = fmt.Sprintf("pending-%d-%d", c, r)
			q.UID = types.UID(q.Name)
			p.pending = append(p.pending, q)
		}
	}
	p.inFlight = m.one(2)
	return p
}

// likes gives some pods preferences: they must not make a plan break a rule.
func (m *maker) likes(p *corev1.Pod) {
	weight := int32(1 + m.IntN(100))
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	term := []corev1.WeightedPodAffinityTerm{{Weight: weight, PodAffinityTerm: corev1.PodAffinityTerm{
		TopologyKey: pick(m, corev1.LabelTopologyZone, corev1.LabelHostname, "team"), LabelSelector: web,
	}}}
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	switch a := p.Spec.Affinity; m.IntN(8) {
	case 0:
		if a.NodeAffinity == nil {
			a.NodeAffinity = &corev1.NodeAffinity{}
		}
		a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{{Weight: weight, Preference: corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: pick(m, "gen", "team", corev1.LabelTopologyZone), Operator: corev1.NodeSelectorOpIn, Values: []string{pick(m, "b", "x", "4")}}},
		}}}
	case 1:
		if a.PodAffinity == nil {
			a.PodAffinity = &corev1.PodAffinity{}
		}
		a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = term
	case 2:
		if a.PodAntiAffinity == nil {
			a.PodAntiAffinity = &corev1.PodAntiAffinity{}
		}
		a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = term
	case 3:
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: pick(m, corev1.LabelTopologyZone, corev1.LabelHostname), WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: web,
		})
	}
}

func (m *maker) daemonSet(i int) runtime.Object {
	name := fmt.Sprintf("daemon-%d", i)
	b := builder.Pod(name).Label("app", pick(m, "web", "agent")).CPU(pick(m, "100m", "300m")).Memory("100Mi")
	if m.one(3) {
		b.HostPort(int32(8000 + m.IntN(2)))
	}
	if m.one(3) {
		b.NodeSelector(pick(m, "team", corev1.LabelInstanceTypeStable, corev1.LabelTopologyZone), pick(m, "x", "small.1", "a"))
	}
	if m.one(3) {
		b.Tolerate(corev1.Toleration{Operator: corev1.TolerationOpExists})
	}
	return builder.DaemonSet(name).UID(name).Template(b).Obj()
}

func (m *maker) nodePool(i int) *karpv1.NodePool {
	b := builder.NodePool(fmt.Sprintf("pool-%d", i)).Weight(int32(1 + m.IntN(2))).Ready()
	if m.one(2) {
		b.NodeLabel("team", pick(m, "x", "y", "4"))
	}
	if m.one(3) {
		b.Require(builder.Requirement("gen", corev1.NodeSelectorOpExists))
	}
	if m.one(3) {
		b.Taint("dedicated", "x", pick(m, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule))
	}
	if m.one(4) {
		b.StartupTaint("agent", "", corev1.TaintEffectNoSchedule)
	}
	if m.one(3) {
		b.Limit("nodes", fmt.Sprint(m.IntN(5)))
	}
	if m.one(3) {
		b.Limit(corev1.ResourceCPU, fmt.Sprint(m.IntN(60)))
	}
	if m.one(3) {
		b.Require(builder.In(karpv1.CapacityTypeLabelKey, pick(m, "spot", "on-demand")))
	}
	if m.one(4) {
		b.Require(builder.In(corev1.LabelTopologyZone, "a", pick(m, "b", "c")))
	}
	return b.Obj()
}

func shop() *capacity.Catalog {
	ephemeral := func(b *builder.InstanceTypeBuilder) *builder.InstanceTypeBuilder {
		return b.Resource(corev1.ResourceEphemeralStorage, "20Gi")
	}
	return builder.Catalog(
		ephemeral(builder.InstanceType("small.1")).CPU("2").Memory("4Gi").OnDemand(0.1, "a", "b", "c").Spot(0.04, "a", "b"),
		ephemeral(builder.InstanceType("big.1")).CPU("16").Memory("64Gi").OnDemand(0.8, "a", "b", "c"),
		ephemeral(builder.InstanceType("gpu.1")).CPU("8").Memory("32Gi").Resource(gpu, "2").OnDemand(1.5, "b"),
	)
}

// judged plans the problem and returns what the judge says of the plan.
func (p problem) judged(ctx context.Context) (*firstVerdict, plan.Result, error) {
	cluster := source.New(append(append([]runtime.Object{}, p.core...), p.karpenter...)...)
	cluster.Sell(builder.DefaultClass, shop())
	b := view.New(cluster.Source())
	v, err := b.Build(ctx, view.Pending{})
	if err != nil {
		return nil, plan.Result{}, err
	}
	in := plan.Input{View: v, OnlyInFlight: p.inFlight}
	pods := provisioner.Pods{Wanting: map[types.UID]*corev1.Pod{}, Class: func(p *corev1.Pod) *capacity.Class { return b.Pod(p).Class }}
	for _, q := range p.pending {
		pods.Wanting[q.UID] = q
		in.Pods = append(in.Pods, b.Pod(q))
	}
	j, err := judge.New(ctx, p.core...)
	if err != nil {
		return nil, plan.Result{}, err
	}
	defer j.Close()
	first := &firstVerdict{judge: j}
	result := provisioner.Planner{Judge: first, Metrics: provisioner.NewMetrics()}.Solve(ctx, in, pods)
	return first, result, first.err
}

// firstVerdict notes what the judge says of the plan as it was made, before it is changed for the refusals.
type firstVerdict struct {
	judge    provisioner.Judge
	asked    bool
	nodes    []hypothesis.Node
	trials   []hypothesis.Trial
	refusals []hypothesis.Refusal
	err      error
}

// Verify implements provisioner.Judge.
func (f *firstVerdict) Verify(ctx context.Context, nodes []hypothesis.Node, trials []hypothesis.Trial) ([]hypothesis.Refusal, error) {
	refusals, err := f.judge.Verify(ctx, nodes, trials)
	if !f.asked {
		*f = firstVerdict{judge: f.judge, asked: true, nodes: nodes, trials: trials, refusals: refusals, err: err}
	}
	return refusals, err
}

// String prints the plan.
func (f *firstVerdict) String() string {
	refused := map[*corev1.Pod]string{}
	for _, r := range f.refusals {
		refused[r.Pod] = "  refused by " + r.Plugin
	}
	out := ""
	for _, n := range f.nodes {
		out += manifest(n.Node)
	}
	out += "# plan\n"
	for _, t := range f.trials {
		out += fmt.Sprintf("%s on %s%s\n", t.Pod.Name, t.Node, refused[t.Pod])
	}
	return out
}

// String prints the problem as short manifests, with one pod of each kind.
func (p problem) String() string {
	out := fmt.Sprintf("# only nodes on their way: %v\n", p.inFlight)
	for _, o := range slices.Concat(p.core, p.karpenter) {
		out += manifest(o)
	}
	for _, q := range p.pending {
		if strings.HasSuffix(q.Name, "-0") {
			out += manifest(q)
		}
	}
	return out
}

func manifest(o runtime.Object) string {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return "---\n# " + err.Error() + "\n"
	}
	if status, ok := m["status"].(map[string]any); ok {
		m["status"] = status["allocatable"]
	}
	raw, err := yaml.Marshal(m)
	if err != nil {
		return "---\n# " + err.Error() + "\n"
	}
	return "---\n" + string(raw)
}

// TestFidelityOfPlans has the judge look at whole plans of generated problems. It must accept every pod. With
// FIDELITY_PLANS=1 and the seed of a failure as FIDELITY_SEED it prints the problem and the plan.
func TestFidelityOfPlans(t *testing.T) {
	plans, first := setting(t, "FIDELITY_PLANS", 30), seed(t)
	asked, launches := 0, 0
	for i := range plans {
		p := newMaker(first + i).problem()
		verdict, result, err := p.judged(t.Context())
		if err != nil {
			t.Fatalf("seed %d: %v", first+i, err)
		}
		asked, launches = asked+len(verdict.trials), launches+len(result.Launches)
		if len(verdict.refusals) > 0 && plans == 1 {
			t.Log(p, verdict)
		}
		for _, r := range verdict.refusals {
			t.Errorf("seed %d: the plan puts %s on %s, plugin %s refuses: %s", first+i, r.Pod.Name, r.Trial.Node, r.Plugin, r.Reason)
		}
	}
	t.Logf("the judge looked at %d plans with %d pods and %d launches", plans, asked, launches)
	if uint64(launches) < plans {
		t.Errorf("%d launches in %d plans: the generator has lost its subject", launches, plans)
	}
}
