// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenter "sigs.k8s.io/karpenter/pkg/apis"
	buffersv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"

	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// TestCapacityBuffer has a buffer of one node's room bought, used by a pod that needs to wait for nobody, and refilled.
func TestCapacityBuffer(t *testing.T) {
	r := prepare(t, bed.Options{Emulator: ec2emu.Options{Seed: 27}, NoLeases: true, SchedulerArgs: []string{"--disable-disruption"}})
	r.apply(string(karpenter.CapacityBufferCRD))
	if err := r.StartSlipway(); err != nil {
		t.Fatal(err)
	}
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("small", 0, onePerNode)
	r.within(30*time.Second, "CapacityBuffers to be served", func(ctx context.Context) (bool, error) {
		return r.kube.List(ctx, &buffersv1beta1.CapacityBufferList{}) == nil, nil
	})
	r.apply(`apiVersion: v1
kind: PodTemplate
metadata: {name: web, namespace: default}
template:
  spec:
    containers:
    - {name: c, image: "registry.example/c:1", resources: {requests: {cpu: "1500m"}}}
---
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {name: web, namespace: default}
spec: {podTemplateRef: {name: web}, replicas: 1}
`)
	filled := func(nodes int) {
		t.Helper()
		r.within(90*time.Second, fmt.Sprintf("the buffer to have room, with %d nodes", nodes), func(ctx context.Context) (bool, error) {
			b := &buffersv1beta1.CapacityBuffer{}
			if err := r.kube.Get(ctx, client.ObjectKey{Namespace: "default", Name: "web"}, b); err != nil {
				return false, err
			}
			return len(r.alive()) == nodes && meta.IsStatusConditionTrue(b.Status.Conditions, buffersv1beta1.ProvisioningCondition), nil
		})
	}
	filled(1)
	c := r.claims()[0]
	if got := c.Annotations[provisioner.BuffersAnnotation]; got != "default/web" {
		t.Errorf("the claim is for buffers %q, want default/web", got)
	}
	r.pod("quick", "1500m")
	r.running("quick", 1)
	var pod corev1.Pod
	if err := r.kube.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "quick"}, &pod); err != nil {
		t.Fatal(err)
	}
	if pod.Spec.NodeName != c.Status.NodeName {
		t.Errorf("the pod is on %q, want %q, which was there for it", pod.Spec.NodeName, c.Status.NodeName)
	}
	filled(2)
}
