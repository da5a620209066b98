// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slipway-sh/slipway/test/builder"
)

// epoch is the time of these tests.
var epoch = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// pod is a ready pod on the node, labelled app=<name>.
func pod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := builder.Pod(name).UID(name).Label("app", name).On("node").Obj()
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, f := range changes {
		f(p)
	}
	return p
}

func owned(kind string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "o", UID: "o", Controller: new(true)}}
	}
}

func critical(p *corev1.Pod) { p.Spec.PriorityClassName = "system-cluster-critical" }

func annotated(k, v string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{k: v} }
}

func graceOf(seconds int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
}

func deleted(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: at} }
}

func started(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: at} }
}

func unready(p *corev1.Pod) { p.Status.Conditions = nil }

func tolerating(t corev1.Toleration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, t) }
}

func phase(f corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = f } }

// pdb covers app=<app> with n disruptions allowed of healthy pods, desired of which have to be.
func pdb(name, app string, allowed, healthy, desired int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", ResourceVersion: "1"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, MinAvailable: new(intstr.FromInt32(desired))},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, CurrentHealthy: healthy, DesiredHealthy: desired, ExpectedPods: healthy},
	}
}

// show is a plan in short.
func show(steps []Step) []string {
	out := make([]string, len(steps))
	for i, s := range steps {
		out[i] = fmt.Sprintf("%s %s", s.Verb, s.Pod.Name)
		switch s.Verb {
		case Delete:
			out[i] += fmt.Sprintf(" in %ds", s.Grace)
		case Wait:
			out[i] += " " + string(s.Blocker)
		case Evict:
		}
	}
	return out
}

func TestPlan(t *testing.T) {
	soon := epoch.Add(time.Minute)
	tests := []struct {
		name string
		in   Input
		want []string
	}{
		{name: "nothing is there"},
		{
			name: "workloads go first, then daemonsets, critical ones of either after both",
			in:   Input{Pods: []*corev1.Pod{pod("d", owned("DaemonSet")), pod("dns", critical), pod("proxy", critical, owned("DaemonSet")), pod("web"), pod("bare")}},
			want: []string{"evict bare", "evict web", "wait d LaterTier", "wait dns LaterTier", "wait proxy LaterTier"},
		},
		{
			name: "a tier waits until the pods before it have gone, not only until they were asked to",
			in:   Input{Pods: []*corev1.Pod{pod("d", owned("DaemonSet")), pod("web", deleted(soon))}},
			want: []string{"wait web Terminating", "wait d LaterTier"},
		},
		{
			name: "daemonsets go when they are alone",
			in:   Input{Pods: []*corev1.Pod{pod("d", owned("DaemonSet")), pod("proxy", critical, owned("DaemonSet"))}},
			want: []string{"evict d", "wait proxy LaterTier"},
		},
		{
			name: "pods nothing waits for",
			in: Input{Pods: []*corev1.Pod{
				pod("mirror", owned("Node")), pod("done", phase(corev1.PodSucceeded)), pod("failed", phase(corev1.PodFailed)),
				pod("stuck", deleted(epoch.Add(-2*time.Minute))), pod("everywhere", tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})),
				pod("tolerant", tolerating(corev1.Toleration{Key: "karpenter.sh/disrupted", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})),
			}},
		},
		{
			name: "tolerations of other taints and other effects don't count",
			in: Input{Pods: []*corev1.Pod{
				pod("a", tolerating(corev1.Toleration{Key: "x", Operator: corev1.TolerationOpExists})),
				pod("b", tolerating(corev1.Toleration{Key: "karpenter.sh/disrupted", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})),
			}},
			want: []string{"evict a", "evict b"},
		},
		{
			name: "do-not-disrupt, for good and for a time",
			in: Input{Pods: []*corev1.Pod{
				pod("forever", annotated("karpenter.sh/do-not-disrupt", "true"), started(epoch.Add(-time.Hour))),
				pod("over", annotated("karpenter.sh/do-not-disrupt", "10m"), started(epoch.Add(-time.Hour))),
				pod("young", annotated("karpenter.sh/do-not-disrupt", "10m"), started(epoch.Add(-time.Minute))),
				pod("waiting", annotated("karpenter.sh/do-not-disrupt", "10m"), func(p *corev1.Pod) { p.Status.StartTime = nil }),
				pod("wrong", annotated("karpenter.sh/do-not-disrupt", "soon"), started(epoch)),
			}},
			want: []string{"wait forever DoNotDisrupt", "evict over", "wait waiting DoNotDisrupt", "evict wrong", "wait young DoNotDisrupt"},
		},
		{
			name: "a budget is shared out, two on one pod are said, none that cannot say yes is asked",
			in: Input{
				Pods:    []*corev1.Pod{pod("a", app("x")), pod("b", app("x")), pod("c", app("y")), pod("d", app("z")), pod("e")},
				Budgets: []*policyv1.PodDisruptionBudget{pdb("x", "x", 1, 3, 2), pdb("y", "y", 0, 1, 1), pdb("z1", "z", 5, 5, 0), pdb("z2", "z", 5, 5, 0)},
			},
			want: []string{"evict a", "wait b PodDisruptionBudget", "wait c PodDisruptionBudget", "wait d MultiplePodDisruptionBudgets", "evict e"},
		},
		{
			name: "pods that are not ready count against no healthy budget, with AlwaysAllow against none",
			in: Input{
				Pods: []*corev1.Pod{pod("a", app("x"), unready), pod("b", app("y"), unready), pod("c", app("z"), unready), pod("d", app("z"), phase(corev1.PodPending))},
				Budgets: []*policyv1.PodDisruptionBudget{
					pdb("x", "x", 0, 2, 2), always(pdb("y", "y", 0, 0, 1)), pdb("z", "z", 0, 0, 1),
				},
			},
			want: []string{"evict a", "evict b", "wait c PodDisruptionBudget", "evict d"},
		},
		{
			name: "a budget that was just changed is not trusted",
			in: Input{Pods: []*corev1.Pod{pod("a")}, Budgets: []*policyv1.PodDisruptionBudget{func() *policyv1.PodDisruptionBudget {
				b := pdb("a", "a", 1, 2, 1)
				b.Generation, b.Status.ObservedGeneration = 2, 1
				return b
			}()}},
			want: []string{"wait a PodDisruptionBudget"},
		},
		{
			name: "a refused eviction is repeated when its time has come, or its budget has changed",
			in: Input{
				Pods:    []*corev1.Pod{pod("a", app("x")), pod("b"), pod("c")},
				Budgets: []*policyv1.PodDisruptionBudget{pdb("x", "x", 1, 2, 1)},
				Refusals: map[types.UID]Refusal{
					"a": {Until: soon, Version: "0,"}, "b": {Until: soon}, "c": {Until: epoch},
				},
			},
			want: []string{"evict a", "wait b EvictionRefused", "evict c"},
		},
		{
			name: "by the deadline all are deleted, each as early as its own grace period needs",
			in: Input{
				Deadline: soon,
				Pods: []*corev1.Pod{
					pod("long", graceOf(120), annotated("karpenter.sh/do-not-disrupt", "true")), pod("exact", graceOf(60), app("x")), pod("short", graceOf(30), app("x")),
					pod("daemon", owned("DaemonSet"), graceOf(600)),
				},
				Budgets: []*policyv1.PodDisruptionBudget{pdb("x", "x", 0, 2, 2)},
			},
			want: []string{"delete exact in 60s", "delete long in 60s", "wait short PodDisruptionBudget", "delete daemon in 60s"},
		},
		{
			name: "a pod that would terminate beyond the deadline is given less time, once",
			in:   Input{Deadline: soon, Pods: []*corev1.Pod{pod("a", graceOf(3600), deleted(epoch.Add(time.Hour))), pod("b", graceOf(3600), deleted(soon))}},
			want: []string{"delete a in 60s", "wait b Terminating"},
		},
		{
			name: "a deadline that has passed leaves a second",
			in:   Input{Deadline: epoch.Add(-time.Minute), Pods: []*corev1.Pod{pod("a")}},
			want: []string{"delete a in 1s"},
		},
		{
			name: "pods wait for the replacement as long as they can",
			in: Input{
				Deadline: epoch.Add(2 * time.Minute), Hold: "x", Pods: []*corev1.Pod{pod("a", graceOf(30)), pod("b", graceOf(109)), pod("c", graceOf(110)), pod("d", graceOf(120))},
			},
			want: []string{"wait a AwaitingReplacement", "wait b AwaitingReplacement", "evict c", "delete d in 120s"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			tc.in.Now = epoch
			slices.Reverse(tc.in.Pods)
			if d := cmp.Diff(tc.want, show(Plan(tc.in))); d != "" && len(tc.want)+len(Plan(tc.in)) > 0 {
				t.Errorf("plan (-want +got):\n%s", d)
			}
		})
	}
}

func app(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"app": name} }
}

func always(b *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudget {
	b.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
	return b
}

func TestTightBudgets(t *testing.T) {
	percent := func(b *policyv1.PodDisruptionBudget, p string) *policyv1.PodDisruptionBudget {
		b.Spec.MinAvailable = new(intstr.FromString(p))
		return b
	}
	unavailable := pdb("x", "a", 0, 3, 3)
	unavailable.Spec.MinAvailable, unavailable.Spec.MaxUnavailable = nil, new(intstr.FromInt32(0))
	for _, tc := range []struct {
		name   string
		budget *policyv1.PodDisruptionBudget
		want   bool
	}{
		{"one of one", pdb("x", "a", 0, 1, 1), true},
		{"three of three", pdb("x", "a", 0, 3, 3), true},
		{"more than there are", pdb("x", "a", 0, 3, 5), false},
		{"90 % of three", percent(pdb("x", "a", 0, 3, 3), "90%"), false}, // of four: four
		{"70 % of three", percent(pdb("x", "a", 0, 3, 3), "70%"), true},  // of four: three
		{"all", percent(pdb("x", "a", 0, 3, 3), "100%"), false},
		{"none may be unavailable", unavailable, false},
		{"one is not healthy already", func() *policyv1.PodDisruptionBudget {
			b := pdb("x", "a", 0, 2, 2)
			b.Status.ExpectedPods = 3
			return b
		}(), false},
	} {
		steps := Plan(Input{Now: epoch, Pods: []*corev1.Pod{pod("a")}, Budgets: []*policyv1.PodDisruptionBudget{tc.budget}})
		if len(steps) != 1 || steps[0].Blocker != Budget || steps[0].Tight != tc.want {
			t.Errorf("%s: %+v, want tight %v", tc.name, steps, tc.want)
		}
	}
}

// TestPlanIsSafe checks on random drains that nothing is evicted that may not be, and that tiers are kept.
func TestPlanIsSafe(t *testing.T) {
	for seed := range 500 {
		in := randomInput(seed)
		evicted := map[string]int32{}
		first := 4
		for _, s := range Plan(in) {
			if s.Verb != Delete {
				first = min(first, tier(s.Pod))
			}
		}
		for _, s := range Plan(in) {
			p := s.Pod
			if s.Verb == Delete && (in.Deadline.IsZero() || in.Now.Add(grace(p)).Before(in.Deadline)) {
				t.Errorf("seed %d: %s is deleted too early", seed, p.Name)
			}
			if s.Verb != Evict {
				continue
			}
			if p.Annotations["karpenter.sh/do-not-disrupt"] == "true" || tier(p) > first || p.DeletionTimestamp != nil {
				t.Errorf("seed %d: %s is evicted (tier %d of %d, annotations %v)", seed, p.Name, tier(p), first, p.Annotations)
			}
			evicted[p.Labels["app"]]++
		}
		for _, b := range in.Budgets {
			app := b.Spec.Selector.MatchLabels["app"]
			if evicted[app] > b.Status.DisruptionsAllowed {
				t.Errorf("seed %d: %d pods of budget %s are evicted, %d may be", seed, evicted[app], b.Name, b.Status.DisruptionsAllowed)
			}
		}
	}
}
