// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

func TestInitializationTimeout(t *testing.T) {
	daemon := builder.Pod("agent").On("node").OwnedBy(metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}, "ds", "ds-uid").Obj()
	for _, tc := range []struct {
		name     string
		pods     []client.Object
		wantGone bool
	}{
		{"nothing runs on it", nil, true},
		{"daemonset pods and ended ones run on it", []client.Object{daemon, builder.Pod("done").On("node").Phase(corev1.PodSucceeded).Obj()}, true},
		{"a workload runs on it all the same", []client.Object{builder.Pod("web").On("node").Obj()}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			claim := launched().StartupTaint("cni", "", corev1.TaintEffectNoSchedule).Obj()
			r := newRig(t, append(tc.pods, claim, booted().Obj())...)
			r.reconcile("claim")
			r.clock.Step(16 * time.Minute)
			r.reconcile("claim")
			c := r.claim("claim")
			if (c.DeletionTimestamp != nil) != tc.wantGone {
				t.Errorf("deleted is %v, want %v", !tc.wantGone, tc.wantGone)
			}
			if d := cmp.Diff([]string{"InitializationTimeout"}, r.events.reasons); d != "" {
				t.Errorf("events (-want +got):\n%s", d)
			}
			if avoid := c.Annotations[capacity.AvoidAnnotation]; tc.wantGone && avoid != "m5.large/us-east-1a/spot" {
				t.Errorf("the next try is told to avoid %q", avoid)
			}
		})
	}
}

// TestUndeclaredTaint checks that a taint nobody declared is waited for, and accepted when it is still there at the deadline.
func TestUndeclaredTaint(t *testing.T) {
	r := newRig(t, launched().Obj(), booted().Taint("agent", "starting", corev1.TaintEffectNoSchedule).Obj())
	r.reconcile("claim")
	initialized := func() (metav1.ConditionStatus, string) {
		c := r.claim("claim").StatusConditions().Get(karpv1.ConditionTypeInitialized)
		return c.Status, c.Reason
	}
	if status, reason := initialized(); status != metav1.ConditionUnknown || reason != "UndeclaredTaintsExist" {
		t.Fatalf("Initialized is %s, %s while the taint is there", status, reason)
	}
	r.clock.Step(16 * time.Minute)
	r.reconcile("claim")
	if status, _ := initialized(); status != metav1.ConditionTrue || r.node("node").Labels[karpv1.NodeInitializedLabelKey] != "true" {
		t.Errorf("Initialized is %s after the deadline", status)
	}
	if d := cmp.Diff([]string{"UndeclaredTaints"}, r.events.reasons); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

func TestConsistency(t *testing.T) {
	for _, tc := range []struct {
		name, memory string
		want         metav1.ConditionStatus
	}{
		{"as promised", "8Gi", metav1.ConditionTrue},
		{"a little less", "7400Mi", metav1.ConditionTrue},
		{"much less", "7Gi", metav1.ConditionFalse},
	} {
		t.Run(tc.name, func(t *testing.T) {
			claim := launched().Request("memory", "1Gi").Resource("memory", "8Gi").Obj()
			r := newRig(t, claim, booted().Memory(tc.memory).Obj())
			r.reconcile("claim")
			r.reconcile("claim")
			if got := r.claim("claim").StatusConditions().Get(karpv1.ConditionTypeConsistentStateFound); got == nil || got.Status != tc.want {
				t.Errorf("ConsistentStateFound is %v, want %s", got, tc.want)
			}
			var want []string
			if tc.want == metav1.ConditionFalse {
				want = []string{"FailedConsistencyCheck"}
			}
			if d := cmp.Diff(want, r.events.reasons); d != "" {
				t.Errorf("events (-want +got):\n%s", d)
			}
		})
	}
}
