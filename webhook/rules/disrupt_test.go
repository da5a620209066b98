// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/webhook/rules"
)

const protects = "karpenter.sh/do-not-disrupt"

func TestD001(t *testing.T) {
	field := "metadata.annotations[karpenter.sh/do-not-disrupt]: "
	check(t, "D001", map[string]tc{
		"yes": {
			kind: rules.Pod, object: pod(annotated(protects, `"yes"`), full),
			want: []string{field + `"yes" is not "true" or a duration such as 4h; it would be ignored`},
		},
		"negative": {
			kind: rules.Pod, object: pod(annotated(protects, `"-4h"`), full),
			want: []string{field + `"-4h" is not "true" or a duration such as 4h; it would be ignored`},
		},
		"a controller's pod is not to blame": {
			kind: rules.Pod, object: pod(annotated(protects, `"4"`)+ownedBy("ReplicaSet", "web"), full), mild: true,
			want: []string{field + `"4" is not "true" or a duration such as 4h; it would be ignored`},
		},
		"template": {
			kind: rules.Deployment, object: deployment("      annotations: {karpenter.sh/do-not-disrupt: \"True\"}\n", "      containers: [{name: api}]\n"),
			want: []string{"spec.template." + field + `"True" is not "true" or a duration such as 4h; it would be ignored`},
		},
		"true":     {kind: rules.Pod, object: pod(annotated(protects, `"true"`), full)},
		"false":    {kind: rules.Pod, object: pod(annotated(protects, `"false"`), full)},
		"duration": {kind: rules.Pod, object: pod(annotated(protects, `"1h30m"`), full)},
		"none":     {kind: rules.Pod, object: pod("", full)},
	})
}

func TestD002(t *testing.T) {
	check(t, "D002", map[string]tc{
		"old key": {
			kind: rules.Pod, object: pod(annotated("karpenter.sh/do-not-evict", `"true"`), full),
			want: []string{"metadata.annotations[karpenter.sh/do-not-evict]: is no longer read"},
		},
		"new key": {kind: rules.Pod, object: pod(annotated(protects, `"true"`), full)},
	})
}

func TestD003(t *testing.T) {
	check(t, "D003", map[string]tc{
		"endless": {
			kind: rules.Pod, object: pod(annotated(protects, `"true"`)+ownedBy("Job", "train"), full),
			want: []string{`metadata.annotations[karpenter.sh/do-not-disrupt]: "true" never ends`},
		},
		"bounded":          {kind: rules.Pod, object: pod(annotated(protects, `"4h"`)+ownedBy("Job", "train"), full)},
		"a bare pod: D006": {kind: rules.Pod, object: pod(annotated(protects, `"true"`), full)},
	})
}

func TestD004(t *testing.T) {
	check(t, "D004", map[string]tc{
		"too long": {
			kind: rules.Pod, object: pod(annotated(protects, `"240h"`), full),
			want: []string{"metadata.annotations[karpenter.sh/do-not-disrupt]: 240h is longer than the maximum 24h"},
		},
		"the maximum": {kind: rules.Pod, object: pod(annotated(protects, `"24h"`), full)},
	})
}

func TestD006(t *testing.T) {
	check(t, "D006", map[string]tc{
		"bare": {
			kind: rules.Pod, object: pod(annotated(protects, `"true"`), full),
			want: []string{"metadata.annotations[karpenter.sh/do-not-disrupt]: a pod without a controller holds its node for good"},
		},
		"owned":   {kind: rules.Pod, object: pod(annotated(protects, `"true"`)+ownedBy("Job", "train"), full)},
		"bounded": {kind: rules.Pod, object: pod(annotated(protects, `"4h"`), full)},
	})
}

func TestD007(t *testing.T) {
	counts := func(protected, all int) func(*rules.Facts) {
		return func(f *rules.Facts) { f.Protected = func(string) (int, int) { return protected, all } }
	}
	object := pod(annotated(protects, `"4h"`), full)
	check(t, "D007", map[string]tc{
		"above": {
			kind: rules.Pod, object: object, facts: counts(4, 39),
			want: []string{"metadata.annotations[karpenter.sh/do-not-disrupt]: 5 of 40 pods of the namespace are protected, above the maximum 10%"},
		},
		"at":              {kind: rules.Pod, object: object, facts: counts(3, 39)},
		"rounded up":      {kind: rules.Pod, object: object, facts: counts(0, 0)},
		"not protected":   {kind: rules.Pod, object: pod("", full), facts: counts(40, 40)},
		"counts unknown":  {kind: rules.Pod, object: object},
		"absolute number": {kind: rules.Pod, object: object, facts: func(f *rules.Facts) { counts(5, 5)(f); f.Policy.Disruption.MaxProtectedPods = "6" }},
	})
}

func TestD008(t *testing.T) {
	check(t, "D008", map[string]tc{
		"node": {
			kind: rules.Node, object: "metadata: {name: node-1, annotations: {karpenter.sh/do-not-disrupt: 4h}}",
			want: []string{`metadata.annotations[karpenter.sh/do-not-disrupt]: "4h" is ignored on a node, only "true" counts`},
		},
		"pool": {
			kind: rules.NodePool, object: "spec: {template: {metadata: {annotations: {karpenter.sh/do-not-disrupt: 4h}}}}",
			want: []string{`spec.template.metadata.annotations[karpenter.sh/do-not-disrupt]: "4h" is ignored on a node, only "true" counts`},
		},
		"true": {kind: rules.Node, object: "metadata: {name: node-1, annotations: {karpenter.sh/do-not-disrupt: \"true\"}}"},
	})
}

// pools are what the pod fits, and that answer.
func pools(v rules.Feasibility, list ...*karpv1.NodePool) func(*rules.Facts) {
	return func(f *rules.Facts) {
		for _, p := range list {
			v.Pools = append(v.Pools, p.Name)
		}
		f.Pools = func() []*karpv1.NodePool { return list }
		f.Where = func(string, *corev1.PodTemplateSpec) rules.Feasibility { return v }
		f.Feasible = f.Where
	}
}

func bounded(name string, d time.Duration) *karpv1.NodePool {
	p := builder.NodePool(name).Obj()
	p.Spec.Template.Spec.TerminationGracePeriod = &metav1.Duration{Duration: d}
	return p
}

func TestD009(t *testing.T) {
	long := pod("", full+"  terminationGracePeriodSeconds: 7200\n")
	yes := rules.Feasibility{Answer: rules.Yes}
	check(t, "D009", map[string]tc{
		"every pool is shorter": {
			kind: rules.Pod, object: long, facts: pools(yes, bounded("a", time.Minute), bounded("b", time.Hour)),
			want: []string{`spec.terminationGracePeriodSeconds: 7200 s is longer than terminationGracePeriod of every pool it fits (at most 1h in "b")`},
		},
		"one is not bounded": {kind: rules.Pod, object: long, facts: pools(yes, bounded("a", time.Minute), builder.NodePool("b").Obj())},
		"fits nowhere":       {kind: rules.Pod, object: long, facts: pools(rules.Feasibility{Answer: rules.No})},
		"the default":        {kind: rules.Pod, object: pod("", full), facts: pools(yes, bounded("a", time.Second))},
	})
}

func TestD010(t *testing.T) {
	long := pod("", full+"  terminationGracePeriodSeconds: 600\n")
	check(t, "D010", map[string]tc{
		"spot only": {
			kind: rules.Pod, object: long, facts: pools(rules.Feasibility{Answer: rules.Yes, OnlySpot: true}, builder.NodePool("a").Obj()),
			want: []string{"spec.terminationGracePeriodSeconds: 600 s, but only spot capacity fits, which ends 120 s after its notice"},
		},
		"on-demand too": {kind: rules.Pod, object: long, facts: pools(rules.Feasibility{Answer: rules.Yes}, builder.NodePool("a").Obj())},
	})
}

func TestD011(t *testing.T) {
	yes := rules.Feasibility{Answer: rules.Yes}
	expiring := builder.NodePool("a").Obj()
	expiring.Spec.Template.Spec.ExpireAfter = karpv1.MustParseNillableDuration("720h")
	object := pod(annotated(protects, `"true"`), full)
	check(t, "D011", map[string]tc{
		"expires": {
			kind: rules.Pod, object: object, facts: pools(yes, expiring),
			want: []string{`metadata.annotations[karpenter.sh/do-not-disrupt]: every pool it fits ("a") has expireAfter and no terminationGracePeriod`},
		},
		"one is bounded": {kind: rules.Pod, object: object, facts: pools(yes, expiring, bounded("b", time.Hour))},
		"not protected":  {kind: rules.Pod, object: pod("", full), facts: pools(yes, expiring)},
	})
}
