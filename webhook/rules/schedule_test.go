// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook/rules"
)

func selectorOf(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func TestScheduled(t *testing.T) {
	tests := map[string]struct {
		meta, spec string
		want       bool
	}{
		"unset":      {"", full, true},
		"default":    {"", full + "  schedulerName: default-scheduler\n", true},
		"another":    {"", full + "  schedulerName: volcano\n", false},
		"slipway":    {"", full + "  schedulerName: slipway\n", false},
		"daemonset":  {ownedBy("DaemonSet", "log"), full, false},
		"mirror":     {annotated("kubernetes.io/config.mirror", "x"), full, false},
		"bound":      {"", full + "  nodeName: node-1\n", false},
		"opted out":  {"  labels: {slipway.sh/scheduler: default}\n", full, false},
		"replicaset": {ownedBy("ReplicaSet", "web"), full, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := rules.Scheduled(decode(t, rules.Pod, pod(tt.meta, tt.spec))); got != tt.want {
				t.Errorf("Scheduled is %t, want %t", got, tt.want)
			}
		})
	}
}

func TestS002(t *testing.T) {
	check(t, "S002", map[string]tc{
		"default scheduler": {kind: rules.Pod, object: pod("", full), want: []string{`spec.schedulerName: is "default-scheduler" in a namespace managed by Slipway`}},
		"slipway":           {kind: rules.Pod, object: pod("", full+"  schedulerName: slipway\n")},
		"opted out":         {kind: rules.Pod, object: pod("  labels: {slipway.sh/scheduler: default}\n", full)},
	})
}

func TestS003(t *testing.T) {
	classes := func(f *rules.Facts) {
		f.Policy.LatencyClasses = []v1alpha1.LatencyClass{{Name: "interactive"}, {Name: "batch"}}
	}
	object := pod(annotated(v1alpha1.LatencyClassAnnotation, "interactiv"), full)
	check(t, "S003", map[string]tc{
		"unknown": {
			kind: rules.Pod, object: object, facts: classes,
			want: []string{`metadata.annotations[slipway.sh/latency-class]: "interactiv" is not one of batch, interactive`},
		},
		"known":      {kind: rules.Pod, object: pod(annotated(v1alpha1.LatencyClassAnnotation, "batch"), full), facts: classes},
		"no classes": {kind: rules.Pod, object: object},
	})
}

func TestS004(t *testing.T) {
	arch := func(f *rules.Facts) {
		f.Policy.Placement = &v1alpha1.Placement{NodeSelector: map[string]string{"kubernetes.io/arch": "amd64"}}
	}
	check(t, "S004", map[string]tc{
		"the pod's own": {
			kind: rules.Pod, object: pod("", full+"  nodeSelector: {kubernetes.io/arch: arm64}\n"), facts: arch,
			want: []string{`spec.nodeSelector[kubernetes.io/arch]: is "arm64", the policy would set "amd64"`},
		},
		"absent": {kind: rules.Pod, object: pod("", full), facts: arch},
	})
}

func TestS005(t *testing.T) {
	object := pod("", full)
	check(t, "S005", map[string]tc{
		"no": {
			kind: rules.Pod, object: object, facts: pools(rules.Feasibility{Answer: rules.No, Nearest: "general", Reason: "memory 410Gi wanted, 371Gi is the largest"}),
			want: []string{`: no NodePool fits. Closest "general": memory 410Gi wanted, 371Gi is the largest`},
		},
		"no pool at all": {
			kind: rules.Pod, object: object, facts: pools(rules.Feasibility{Answer: rules.No, Reason: "there is no NodePool"}),
			want: []string{": no NodePool fits: there is no NodePool"},
		},
		"unknown":   {kind: rules.Pod, object: object, facts: pools(rules.Feasibility{Answer: rules.Unknown})},
		"yes":       {kind: rules.Pod, object: object, facts: pools(rules.Feasibility{Answer: rules.Yes})},
		"daemonset": {kind: rules.Pod, object: pod(ownedBy("DaemonSet", "log"), full), facts: pools(rules.Feasibility{Answer: rules.No, Reason: "x"})},
	})
}

func TestS006(t *testing.T) {
	words := func(f *rules.Facts) {
		f.Vocabulary = func() map[string][]string {
			return map[string][]string{"karpenter.sh/capacity-type": {"on-demand", "spot"}, "kubernetes.io/arch": {"amd64", "arm64"}, "team": {}}
		}
	}
	check(t, "S006", map[string]tc{
		"value": {
			kind: rules.Pod, object: pod("", full+"  nodeSelector: {karpenter.sh/capacity-type: on_demand}\n"), facts: words,
			want: []string{`spec.nodeSelector[karpenter.sh/capacity-type]: no node can have the value "on_demand"`},
		},
		"key": {
			kind: rules.Pod, object: pod("", full+"  nodeSelector: {kubernetes.io/arhc: amd64}\n"), facts: words,
			want: []string{"spec.nodeSelector[kubernetes.io/arhc]: no node, NodePool or instance type has this label"},
		},
		"affinity": {
			kind: rules.Pod, facts: words, object: pod("", full+`  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: kubernetes.io/arch, operator: In, values: [mips, riscv]}, {key: kubernetes.io/arch, operator: In, values: [mips, arm64]}]}]}}}`),
			want: []string{`spec.affinity.nodeAffinity.required.nodeSelectorTerms[0][kubernetes.io/arch]: no node can have the value "mips"`},
		},
		"an alias":      {kind: rules.Pod, object: pod("", full+"  nodeSelector: {beta.kubernetes.io/arch: amd64}\n"), facts: words},
		"free values":   {kind: rules.Pod, object: pod("", full+"  nodeSelector: {team: anything}\n"), facts: words},
		"nothing known": {kind: rules.Pod, object: pod("", full+"  nodeSelector: {a: b}\n")},
	})
}

func TestS007(t *testing.T) {
	check(t, "S007", map[string]tc{
		"set":     {kind: rules.Pod, object: pod("", full+"  nodeName: node-1\n"), want: []string{"spec.nodeName: is set, so no scheduler sees the pod"}},
		"not set": {kind: rules.Pod, object: pod("", full)},
	})
}

func TestS008(t *testing.T) {
	exclusive := "      containers: [{name: api}]\n      affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: topology.kubernetes.io/zone, labelSelector: {matchLabels: {app: web}}}]}}\n"
	three := pools(rules.Feasibility{Answer: rules.Unknown, Zones: 3})
	check(t, "S008", map[string]tc{
		"a zone a replica": {
			kind: rules.Deployment, object: deployment("", exclusive), facts: three,
			want: []string{"spec.template.spec.affinity.podAntiAffinity: 6 replicas need 6 zones, the pool with most has 3"},
		},
		"minDomains": {
			kind: rules.Deployment, facts: three,
			object: deployment("", "      containers: [{name: api}]\n      topologySpreadConstraints: [{maxSkew: 1, minDomains: 4, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}]\n"),
			want:   []string{"spec.template.spec.topologySpreadConstraints: minDomains 4 needs 4 zones, the pool with most has 3"},
		},
		"enough": {kind: rules.Deployment, object: deployment("", exclusive), facts: pools(rules.Feasibility{Zones: 6})},
	})
}

func TestS009(t *testing.T) {
	check(t, "S009", map[string]tc{
		"everything": {
			kind: rules.Pod, object: pod("", full+"  tolerations: [{operator: Exists}]\n"),
			want: []string{"spec.tolerations: tolerates karpenter.sh/disrupted, so draining a node does not move the pod"},
		},
		"everything, but NoExecute only": {kind: rules.Pod, object: pod("", full+"  tolerations: [{operator: Exists, effect: NoExecute}]\n")},
		"daemonset":                      {kind: rules.Pod, object: pod(ownedBy("DaemonSet", "log"), full+"  tolerations: [{operator: Exists}]\n")},
	})
}
