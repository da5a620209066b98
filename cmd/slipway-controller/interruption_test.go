// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// TestSpotInterruption follows a notice from the queue to the end of the interrupted node, through this command, the launcher,
// a real API server and an emulated EC2.
func TestSpotInterruption(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	w := newWorld(t)
	w.controller()
	w.apply()
	_, _, stop := w.launcher()
	defer stop()
	w.create("", "old")
	w.eventually("the claim to be ready", func() bool { return w.initialized("old") })
	old := &karpv1.NodeClaim{}
	w.get("old", old)
	if old.Labels[karpv1.CapacityTypeLabelKey] != karpv1.CapacityTypeSpot {
		t.Fatalf("the claim's instance is %s, not spot", old.Labels[karpv1.CapacityTypeLabelKey])
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: corev1.PodSpec{
		NodeName: old.Status.NodeName,
		Containers: []corev1.Container{{Name: "web", Image: "web", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m")},
		}}},
	}}
	if err := w.kube.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	// A notice that comes before the controller knows of the pod finds an empty node, which needs no replacement.
	w.eventually("the controller to see the pod", func() bool {
		return w.seen.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{}) == nil
	})
	first := w.alive()[0]
	w.step("a pod runs on a spot node")

	if err := w.Emulator.InterruptSpot(first.ID); err != nil {
		t.Fatal(err)
	}
	w.eventually("the interrupted claim to go", func() bool { return !w.get("old", &karpv1.NodeClaim{}) })
	w.step("the interrupted claim has gone")
	var claims karpv1.NodeClaimList
	if err := w.kube.List(t.Context(), &claims); err != nil {
		t.Fatal(err)
	}
	if len(claims.Items) != 1 || claims.Items[0].Annotations[capacity.ReplacesAnnotation] != "old" {
		t.Fatalf("there is no replacement:\n%s", w.describe())
	}
	name := claims.Items[0].Name
	w.eventually("the replacement to be ready", func() bool { return w.initialized(name) })
	next := &karpv1.NodeClaim{}
	w.get(name, next)
	if was, is := first.InstanceType+first.Zone, next.Labels[corev1.LabelInstanceTypeStable]+next.Labels[corev1.LabelTopologyZone]; was == is && next.Labels[karpv1.CapacityTypeLabelKey] == karpv1.CapacityTypeSpot {
		t.Errorf("the replacement is a spot %s, which EC2 has just taken back", was)
	}
	cpu := next.Spec.Resources.Requests[corev1.ResourceCPU]
	if cpu.String() != "300m" {
		t.Errorf("the replacement asks for %s cpu, the pod for 300m", cpu.String())
	}
	if bought, ended := w.at(ec2emu.Launched, 2), w.at(ec2emu.ShuttingDown, 1); bought < 0 || ended < 0 || bought > ended {
		t.Errorf("the replacement was bought as event %d, the old instance ended as event %d", bought, ended)
	}
	if visible, hidden := w.Emulator.QueueDepth(); visible+hidden != 0 {
		w.eventually("the queue to be empty", func() bool { v, h := w.Emulator.QueueDepth(); return v+h == 0 })
	}
}

// at is the position of the nth event of the type in what has happened to instances, -1 if it has not.
func (w *world) at(kind ec2emu.EventType, nth int) int {
	for i, e := range w.Emulator.Events() {
		if e.Type == kind {
			if nth--; nth == 0 {
				return i
			}
		}
	}
	return -1
}
