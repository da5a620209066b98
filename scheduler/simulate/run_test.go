// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true,
		func(context.Context) (bool, error) { return ok(), nil })
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

func TestClassKey(t *testing.T) {
	base := func() *corev1.Pod { return pod("p", "web").Obj() }
	baseKey, ok := classKey(base())
	if !ok {
		t.Fatal("a plain pod has no key")
	}
	for _, tc := range []struct {
		name     string
		pod      *corev1.Pod
		wantSame bool
		wantOK   bool
	}{
		{name: "a sibling", pod: pod("q", "web").Obj(), wantSame: true, wantOK: true},
		{name: "another app", pod: pod("q", "db").Obj(), wantOK: true},
		{name: "another namespace", pod: pod("q", "web").Namespace("other").Obj(), wantOK: true},
		{name: "another priority", pod: pod("q", "web").Priority(7).Obj(), wantOK: true},
		{name: "a host port", pod: pod("q", "web").HostPort(80).Obj(), wantOK: true},
		{name: "a toleration", pod: pod("q", "web").Toleration("gpu").Obj(), wantOK: true},
		{name: "a volume claim", pod: pod("q", "web").PVC("data").Obj()},
		{name: "a resource claim", pod: pod("q", "web").PodResourceClaims(corev1.PodResourceClaim{Name: "gpu"}).Obj()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			key, ok := classKey(tc.pod)
			if ok != tc.wantOK {
				t.Fatalf("classKey() ok = %v, want %v", ok, tc.wantOK)
			}
			if ok && (key == baseKey) != tc.wantSame {
				t.Errorf("same key as the plain pod: %v, want %v", key == baseKey, tc.wantSame)
			}
		})
	}
}

func TestClassKeyLeavesThePodAlone(t *testing.T) {
	p := pod("p", "web").Obj()
	before := p.DeepCopy()
	classKey(p)
	if p.Spec.Volumes == nil || p.Spec.Containers[0].VolumeMounts[0].Name != before.Spec.Containers[0].VolumeMounts[0].Name {
		t.Error("classKey changed the pod, which an informer owns")
	}
}

// TestRepairSpreadKnowsThePlugin fails when the plugin's state has changed its
// shape. Verify would still be right then, but slow for spread pods.
func TestRepairSpreadKnowsThePlugin(t *testing.T) {
	b := newBench(t, nil, nil, node("n1", "a", "8"), node("n2", "b", "8"), node("n3", "c", "8"))
	b.verify(t, nil) // fills the overlay
	state := framework.NewCycleState()
	if _, status, _ := b.judge.fallback.framework.RunPreFilterPlugins(t.Context(), state, spreadBy(zoneKey, "web", 1)("p")); !status.IsSuccess() {
		t.Fatal(status)
	}
	if !repairSpread(state) {
		t.Error("repairSpread() does not recognise the state of PodTopologySpread")
	}
	if repairSpread(framework.NewCycleState()) {
		t.Error("repairSpread() repaired a state that is not there")
	}
}
