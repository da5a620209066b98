// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

// A claim that somebody's finalizer keeps after its instance has ended uses up no budget: the others go on.
func TestFinalizerThatNeverGoes(t *testing.T) {
	b := newBed(t, func(p *builder.NodePoolBuilder) { p.Budget("1") })
	kept, next := b.node("m5.large", 0, "1"), b.node("m5.large", 0, "1")
	kept.Claim.DeletionTimestamp, kept.Claim.Finalizers = new(metav1.NewTime(b.Now.Add(-time.Hour))), []string{"example.com/backup"}
	b.want(b.decide(0)) // its instance may still run
	kept.Claim.Status.Conditions = append(kept.Claim.Status.Conditions, status.Condition{
		Type: karpv1.ConditionTypeInstanceTerminating, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(b.Now),
	})
	kept.Touch()
	b.want(b.decide(0), "Empty "+next.Claim.Name)
}

// A replacement that somebody deletes by hand takes the command back, with the reason; another is tried after a pause.
func TestReplacementIsDeletedByHand(t *testing.T) {
	r := newRig(t, func(p *builder.NodePoolBuilder) { p.NodeLabel("team", "a").Require(builder.In("team", "a")) })
	r.node("old", "m5.large")
	r.pod("app", "old", "1500m")
	r.pass()
	next := r.replacement("old")
	if next == nil {
		t.Fatal("nothing was bought")
	}
	next.Finalizers = nil
	if err := r.Kube.Update(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if err := client.IgnoreNotFound(r.Kube.Delete(t.Context(), next)); err != nil {
		t.Fatal(err)
	}
	r.Clock.Step(time.Minute) // a claim that was just written is believed to be there
	r.pass()
	r.untouched("old")
	if !r.heard("old", "DisruptionBlocked", "is gone") {
		t.Errorf("events %v, want that the replacement is gone", r.Said)
	}
	r.run(20 * time.Minute)
	if r.claim("old") != nil {
		t.Error("the drifted node was not tried again")
	}
}

// The node of a command goes by itself while its replacement boots (its instance was ended by hand, its claim collected): the
// command is over, and the replacement stays for the pods.
func TestNodeIsGoneWhileWaiting(t *testing.T) {
	r := newRig(t, func(p *builder.NodePoolBuilder) { p.NodeLabel("team", "a").Require(builder.In("team", "a")) })
	r.node("old", "m5.large")
	r.pod("app", "old", "1500m")
	r.pass()
	next := r.replacement("old")
	r.remove("old")
	r.run(5 * time.Minute)
	list, err := r.Claims(t.Context())
	if err != nil || len(list) != 1 || list[0].Name != next.Name {
		t.Errorf("claims %v with error %v, want %s alone", names(list), err, next.Name)
	}
}

// A budget of pods that never allows anything holds up its own node only, which says so.
func TestBudgetOfPodsThatNeverAllows(t *testing.T) {
	r := newRig(t, func(p *builder.NodePoolBuilder) { p.NodeLabel("team", "a").Require(builder.In("team", "a")) })
	for _, name := range []string{"a", "b"} {
		r.node(name, "m5.large")
	}
	r.pod("never", "a", "1500m")
	r.pod("free", "b", "1500m", func(p *corev1.Pod) { p.Labels["app"] = "b" })
	if err := r.Kube.Create(t.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "strict"}, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: new(intstr.FromInt(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
	}}); err != nil {
		t.Fatal(err)
	}
	r.run(10 * time.Minute)
	r.untouched("a")
	if !r.heard("a", "DisruptionBlocked", "PodDisruptionBudget=[default/strict]") || r.claim("b") != nil {
		t.Errorf("b is there: %v; events %v, want b replaced and the budget named for a", r.claim("b") != nil, r.Said)
	}
}

// A pool that is deleted and made again while its node waits for a replacement: the command is taken back and begun anew.
func TestPoolIsMadeAgainWhileDisrupting(t *testing.T) {
	r := newRig(t, func(p *builder.NodePoolBuilder) { p.NodeLabel("team", "a").Require(builder.In("team", "a")) })
	r.node("old", "m5.large")
	r.pod("app", "old", "1500m")
	r.pass()
	np := &karpv1.NodePool{}
	if err := r.Kube.Get(t.Context(), client.ObjectKey{Name: "p"}, np); err != nil {
		t.Fatal(err)
	}
	if err := r.Kube.Delete(t.Context(), np); err != nil {
		t.Fatal(err)
	}
	r.pass()
	r.untouched("old")
	if !r.heard("old", "DisruptionBlocked", "NodePool not found (NodePool=p)") {
		t.Errorf("events %v, want that the pool is gone", r.Said)
	}
	np.ResourceVersion, np.UID = "", "uid-again"
	if err := r.Kube.Create(t.Context(), np); err != nil {
		t.Fatal(err)
	}
	r.run(30 * time.Minute)
	if r.claim("old") != nil {
		t.Error("the drifted node was not replaced in the new pool")
	}
}

// A schedule that never comes counts as one that is always active, which is what Karpenter makes of it; to others than its reasons it
// is nothing.
func TestScheduleThatNeverComes(t *testing.T) {
	np := builder.NodePool("p").Obj()
	np.Spec.Disruption.Budgets = []karpv1.Budget{window("2", "0 0 30 2 *", time.Hour, karpv1.DisruptionReasonDrifted), {Nodes: "5"}}
	for reason, want := range map[karpv1.DisruptionReason]int{karpv1.DisruptionReasonDrifted: 2, karpv1.DisruptionReasonEmpty: 5} {
		if n, err := disruption.Allowed(np, capacity.PoolSettings{}, 20, reason, builder.Epoch()); n != want || err != nil {
			t.Errorf("Allowed(%s) = %d, %v, want %d", reason, n, err, want)
		}
	}
}

// A budget with a schedule that never comes is reported, one whose window is closed or open now is not.
func TestScheduleThatNeverComesIsReported(t *testing.T) {
	for schedule, want := range map[string]bool{"0 0 30 2 *": true, "* * * * *": false, "0 3 * * *": false, "@daily": false} {
		r := newRig(t, func(p *builder.NodePoolBuilder) { p.Budget("50%") })
		np := &karpv1.NodePool{}
		if err := r.Kube.Get(t.Context(), client.ObjectKey{Name: "p"}, np); err != nil {
			t.Fatal(err)
		}
		np.Spec.Disruption.Budgets = append(np.Spec.Disruption.Budgets, window("1", schedule, time.Hour))
		if err := r.Kube.Update(t.Context(), np); err != nil {
			t.Fatal(err)
		}
		r.pass()
		if got := r.heard("p", "InvalidBudget", "spec.disruption.budgets[1]: its schedule \""+schedule+"\" never comes"); got != want {
			t.Errorf("schedule %q: reported %v, want %v; events %v", schedule, got, want, r.Said)
		}
	}
}

// stumbling is an API server that fails to list pods while it is down.
type stumbling struct {
	client.Reader

	down bool
}

func (s *stumbling) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, pods := list.(*corev1.PodList); pods && s.down {
		return errors.New("the server is currently unable to handle the request")
	}
	return s.Reader.List(ctx, list, opts...)
}

// An API server that stumbles when all that is left is to look once more: the command waits for the next pass, and what was bought is
// used. Its saving counts when the node goes, not before.
func TestLastLookFails(t *testing.T) {
	r := newRig(t, func(p *builder.NodePoolBuilder) { p.NodeLabel("team", "a").Require(builder.In("team", "a")) }) // the node drifts
	r.node("old", "m5.2xlarge")
	r.pod("app", "old", "900m")
	live := &stumbling{Reader: r.Kube}
	r.Controller.Live = live
	if err := r.Step(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	r.pass()
	next := r.replacement("old")
	if next == nil {
		t.Fatal("nothing was bought")
	}
	saved := r.Controller.Metrics.Savings.WithLabelValues("drifted", "p")
	live.down = true
	r.run(5 * time.Minute)
	if c := r.claim("old"); c == nil || c.Annotations[disruption.RecordAnnotation] == "" || !r.tainted("old") {
		t.Error("the command was ended or taken back while pods could not be listed")
	}
	if got := testutil.ToFloat64(saved); got != 0 {
		t.Errorf("%.2f $/h count as saved before the node goes", got)
	}
	live.down = false
	r.run(5 * time.Minute)
	if r.claim("old") != nil || r.claim(next.Name) == nil {
		t.Error("the node did not go, or not its replacement took its place")
	}
	if got := testutil.ToFloat64(saved); got < 0.069 || got > 0.071 {
		t.Errorf("saved %.2f $/h, want the 0.07 between eight cores on spot and two on demand", got)
	}
}
