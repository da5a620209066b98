// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/test/builder"
)

func TestRepair(t *testing.T) {
	set := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, ago time.Duration) func(*corev1.Node, time.Time) {
		return func(n *corev1.Node, now time.Time) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: kind, Status: status, LastTransitionTime: metav1.Time{Time: now.Add(-ago)}}}
		}
	}
	for _, tc := range []struct {
		name       string
		condition  func(*corev1.Node, time.Time)
		annotation string
		// sick of the pool's other nodes, of which there are nine.
		sick       int
		wantGone   bool
		wantWait   time.Duration
		wantEvents []string
	}{
		{name: "healthy", condition: set(corev1.NodeReady, corev1.ConditionTrue, time.Hour)},
		{name: "a condition of no policy", condition: set("DiskPressure", corev1.ConditionTrue, time.Hour)},
		{name: "not ready for a while", condition: set(corev1.NodeReady, corev1.ConditionFalse, 10*time.Minute), wantWait: 20 * time.Minute},
		{name: "not ready for long", condition: set(corev1.NodeReady, corev1.ConditionFalse, 30*time.Minute), wantGone: true, wantEvents: []string{"Unhealthy"}},
		{name: "not heard of for long", condition: set(corev1.NodeReady, corev1.ConditionUnknown, 31*time.Minute), wantGone: true, wantEvents: []string{"Unhealthy"}},
		{name: "a broken GPU", condition: set("AcceleratedHardwareReady", corev1.ConditionFalse, 10*time.Minute), wantGone: true, wantEvents: []string{"Unhealthy"}},
		{name: "as many as may be", condition: set("StorageReady", corev1.ConditionFalse, time.Hour), sick: 1, wantGone: true, wantEvents: []string{"Unhealthy"}},
		{name: "too many of the pool", condition: set("StorageReady", corev1.ConditionFalse, time.Hour), sick: 2, wantWait: time.Minute, wantEvents: []string{"NodeRepairBlocked", "NodeRepairBlocked"}},
		{
			name: "not to be repaired", condition: set(corev1.NodeReady, corev1.ConditionFalse, time.Hour), annotation: "true",
			wantEvents: []string{"NodeRepairBlocked", "NodeRepairBlocked"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, n := running()
			r := newRig(t, c.Obj())
			node := n.Pool("default").Annotation("karpenter.sh/do-not-repair", tc.annotation).Obj()
			tc.condition(node, r.clock.Now())
			objects := []client.Object{node}
			for i := range 9 {
				other := builder.Node(fmt.Sprintf("other-%d", i)).Pool("default").Obj()
				if i < tc.sick {
					set(corev1.NodeReady, corev1.ConditionUnknown, time.Second)(other, r.clock.Now())
				}
				objects = append(objects, other)
			}
			for _, o := range objects {
				if err := r.kube.Create(r.ctx(), o); err != nil {
					t.Fatal(err)
				}
			}
			h := NewHealth(r.options())
			result, err := h.Reconcile(r.ctx(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "node"}})
			if err != nil {
				t.Fatal(err)
			}
			claim := r.claim("claim")
			if (claim.DeletionTimestamp != nil) != tc.wantGone || result.RequeueAfter.Round(time.Second) != tc.wantWait {
				t.Errorf("deleted is %v and it comes back after %s, want %v and %s", claim.DeletionTimestamp != nil, result.RequeueAfter, tc.wantGone, tc.wantWait)
			}
			if d := cmp.Diff(tc.wantEvents, r.events.reasons); d != "" {
				t.Errorf("events (-want +got):\n%s", d)
			}
			if !tc.wantGone {
				return
			}
			at, err := time.Parse(time.RFC3339, claim.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey])
			if err != nil || !at.Equal(r.clock.Now().Add(10*time.Minute)) {
				t.Errorf("the pods have until %s (error %v), want ten minutes", at, err)
			}
			if got := testutil.CollectAndCount(h.Metrics.UnhealthyDisrupted); got != 1 {
				t.Errorf("%d series of unhealthy claims, want 1", got)
			}
		})
	}
}

func TestSnake(t *testing.T) {
	for in, want := range map[string]string{"Ready": "ready", "AcceleratedHardwareReady": "accelerated_hardware_ready"} {
		if got := snake(in); got != want {
			t.Errorf("snake(%q) is %q, want %q", in, got, want)
		}
	}
}
