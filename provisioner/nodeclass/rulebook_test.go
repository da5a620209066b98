// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"strings"
	"testing"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// A pool that was applied past admission is told what admission would have said, by the same rules and in their modes.
func TestPoolBreaksRules(t *testing.T) {
	requires := func(key string, values ...string) func(*karpv1.NodePool) {
		return func(p *karpv1.NodePool) {
			p.Spec.Limits = karpv1.Limits{corev1.ResourceCPU: resource.MustParse("100")}
			for _, k := range []string{corev1.LabelOSStable, corev1.LabelArchStable, karpv1.CapacityTypeLabelKey} {
				if k != key {
					p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements, karpv1.NodeSelectorRequirementWithMinValues{Key: k, Operator: corev1.NodeSelectorOpExists})
				}
			}
			p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements, karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values})
		}
	}
	sold := builder.Catalog(builder.InstanceType("m5.large").CPU("2").Memory("8Gi").OnDemand(0.1, "a"))
	mode := func(rule string, m v1alpha1.RuleMode) *v1alpha1.WorkloadPolicy {
		p := &v1alpha1.WorkloadPolicy{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DefaultPolicy}, Spec: rules.Builtin()}
		p.Spec.ClusterRules = map[string]v1alpha1.RuleMode{rule: m}
		return p
	}
	excepted := func(p *karpv1.NodePool) {
		requires(karpv1.CapacityTypeLabelKey, "on_demand")(p)
		p.Annotations = map[string]string{v1alpha1.ExceptAnnotation: "N004=a test;until=2001-09-20"}
	}
	for name, tc := range map[string]struct {
		pool   func(*karpv1.NodePool)
		policy *v1alpha1.WorkloadPolicy
		want   []string // parts of the message; none for no condition
	}{
		"in order":               {pool: requires(karpv1.CapacityTypeLabelKey, "on-demand")},
		"a wrong value":          {pool: requires(karpv1.CapacityTypeLabelKey, "on_demand"), want: []string{`N004: spec.template.spec.requirements[karpenter.sh/capacity-type]: "on_demand" is not one of`, `Did you mean "on-demand"?`}},
		"no type":                {pool: requires(corev1.LabelInstanceTypeStable, "m5.huge"), want: []string{"N002: spec.template.spec.requirements: match none of 1 instance types", "N004:"}},
		"several":                {want: []string{"N006: spec.limits: no limits", "N009: "}},
		"a rule that is off":     {pool: requires(karpv1.CapacityTypeLabelKey, "on_demand"), policy: mode("N004", v1alpha1.Off), want: []string{"N002: "}},
		"a rule that is audited": {pool: func(p *karpv1.NodePool) { requires(karpv1.CapacityTypeLabelKey, "on-demand")(p); p.Spec.Limits = nil }, policy: mode("N006", v1alpha1.Audit)},
		"an exception":           {pool: excepted, want: []string{"N002: "}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &writes{}
			kubernetes := kube(t, w, pool(tc.pool), judged(func(c status.ConditionSet) { c.SetTrue(status.ConditionReady) }))
			known := scheme(t)
			if err := v1alpha1.AddToScheme(known); err != nil {
				t.Fatal(err)
			}
			live := fake.NewClientBuilder().WithScheme(known)
			if tc.policy != nil {
				live = live.WithObjects(tc.policy)
			}
			clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
			r := &PoolReconciler{Kube: kubernetes, Events: &cloud{}, Clock: clock, Rules: &Rulebook{
				Live: live.Build(), Clock: clock, Catalog: func(*v1.EC2NodeClass) *capacity.Catalog { return sold },
			}}
			for range 2 {
				if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "p"}}); err != nil {
					t.Fatal(err)
				}
			}
			if w.status > 1 {
				t.Errorf("%d status writes, want one", w.status)
			}
			got := &karpv1.NodePool{}
			if err := kubernetes.Get(t.Context(), client.ObjectKey{Name: "p"}, got); err != nil {
				t.Fatal(err)
			}
			condition := got.StatusConditions(status.WithObservedOnly()).Get(conditionRules)
			if len(tc.want) == 0 {
				if condition != nil {
					t.Errorf("condition %+v, want none", condition)
				}
				return
			}
			if condition == nil || !condition.IsFalse() || condition.Reason != reasonRules {
				t.Fatalf("condition %+v, want %s=False for %s", condition, conditionRules, reasonRules)
			}
			for _, part := range tc.want {
				if !strings.Contains(condition.Message, part) {
					t.Errorf("message %q lacks %q", condition.Message, part)
				}
			}
			conditions := got.StatusConditions()
			if usable := conditions.Get(karpv1.ConditionTypeValidationSucceeded).IsTrue(); conditions.Root().IsTrue() != usable {
				t.Errorf("Ready depends on rules: %+v", got.Status.Conditions)
			}
		})
	}
}

// TestRulingsAreKept checks that rules are asked again when people have changed the pool, or when time has, and not for every
// reconcile: pools are reconciled for each change of their NodeClaims.
func TestRulingsAreKept(t *testing.T) {
	known := scheme(t)
	if err := v1alpha1.AddToScheme(known); err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	asked := 0
	b := &Rulebook{
		Live: fake.NewClientBuilder().WithScheme(known).Build(), Clock: clock,
		Catalog: func(*v1.EC2NodeClass) *capacity.Catalog { asked++; return nil },
	}
	p := builder.NodePool("p").UID("p").Require(builder.In(corev1.LabelArchStable, "amd64")).Obj()
	kubernetes := kube(t, &writes{}, p, judged(func(c status.ConditionSet) { c.SetTrue(status.ConditionReady) }))
	for _, step := range []struct {
		name  string
		do    func()
		again bool
	}{
		{"the first time", func() {}, true},
		{"nothing has changed", func() {}, false},
		{"its nodes are counted", func() { p.Status.Nodes = new(int64(3)) }, false},
		{"another spec", func() { p.Generation++ }, true},
		{"an exception", func() { p.Annotations = map[string]string{v1alpha1.ExceptAnnotation: "N004=a test"} }, true},
		{"what can be bought may have changed", func() { clock.Step(sameFor) }, true},
	} {
		step.do()
		before := asked
		if err := b.judgePool(t.Context(), kubernetes, p); err != nil {
			t.Fatal(err)
		}
		if again := asked > before; again != step.again {
			t.Errorf("%s: judged again %v, want %v", step.name, again, step.again)
		}
	}
}
