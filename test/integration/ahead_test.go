// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/cluster"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// slowControllers create pods at Kubernetes' own default rate.
var slowControllers = cluster.Options{ControllerQPS: 20}

func burst(replicas int) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: ahead, namespace: default}
spec:
  replicas: %d
  selector: {matchLabels: {app: ahead}}
  template:
    metadata: {labels: {app: ahead}}
    spec:
      schedulerName: slipway
      containers:
      - {name: c, image: "registry.example/c:1", resources: {requests: {cpu: "1500m"}}}
`, replicas)
}

// TestLookAhead checks that the nodes of a burst are asked for before its pods exist, and that each pod takes the place
// that was planned for it.
func TestLookAhead(t *testing.T) {
	const pods = 100
	r := startWith(t, bed.Options{Cluster: slowControllers, Emulator: ec2emu.Options{Seed: 5, BootScale: 0.2}})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("small", 0, "- {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}")
	r.pod("warm", "1500m") // so that what can be bought is known when the burst comes
	r.running("warm", 1)
	r.apply(burst(pods))
	r.running("ahead-", pods)
	ahead := 0
	for _, p := range r.watch.Pods("ahead-") {
		if p.Requested.Before(p.Created) {
			ahead++
		}
	}
	if ahead < pods/4 { // the first thirty come at once, on a busy machine before anything else
		t.Errorf("the nodes of %d of %d pods were asked for before the pods existed, want at least a quarter", ahead, pods)
	}
	if got := len(r.alive()); got != pods+1 {
		t.Errorf("%d instances for %d pods of one a node and the first", got, pods)
	}
	if _, second := r.watch.Claims(); second != 0 {
		t.Errorf("a second node was bought for %d pods", second)
	}
}

// TestScaledDownWhileNodesBoot checks that nodes nobody needs any more are given back before they are in use.
func TestScaledDownWhileNodesBoot(t *testing.T) {
	const pods, left = 60, 5
	r := startWith(t, bed.Options{Cluster: slowControllers, Emulator: ec2emu.Options{Seed: 6, BootScale: 1}})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("small", 0, "- {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}")
	r.pod("warm", "1500m")
	r.running("warm", 1)
	r.apply(burst(pods))
	r.within(time.Minute, "an instance for every replica", func(context.Context) (bool, error) { return len(r.alive()) >= pods, nil })
	var d appsv1.Deployment
	if err := r.kube.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "ahead"}, &d); err != nil {
		t.Fatal(err)
	}
	before := d.DeepCopy()
	d.Spec.Replicas = new(int32(left))
	if err := r.kube.Patch(t.Context(), &d, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	r.within(90*time.Second, "the pods that are left to run", func(context.Context) (bool, error) {
		_, _, running := r.watch.Counts("ahead-")
		return running >= left, nil
	})
	if got := len(r.alive()); got > 1+left+pods/10 {
		t.Errorf("%d instances for %d pods, of %d once wanted: nodes were not cancelled while they booted", got, left, pods)
	}
	if got := len(r.claims()); got < left {
		t.Errorf("%d claims for %d pods", got, left)
	}
}

// TestLookAheadByScale checks that an owner of a kind Slipway does not know is asked by its scale subresource. A paused
// Deployment that owns pods itself is such an owner.
func TestLookAheadByScale(t *testing.T) {
	const pods = 6
	r := start(t, ec2emu.Options{Seed: 24, BootScale: 1})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("small", 0, onePerNode)
	labels := map[string]string{"app": "custom"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "custom", Namespace: "default"},
		Spec: appsv1.DeploymentSpec{
			Paused: true, Replicas: new(int32(pods)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/c:1"}}}},
		},
	}
	if err := r.kube.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	owned := func(p *corev1.Pod) {
		p.Labels = labels
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: d.Name, UID: d.UID, Controller: new(true)}}
	}
	for i := range 2 { // the first has the owner asked about
		r.pod(fmt.Sprintf("custom-%d", i), "1500m", owned)
		r.within(30*time.Second, "its instance", func(context.Context) (bool, error) { return len(r.alive()) > i, nil })
	}
	r.within(30*time.Second, "an instance for every replica", func(context.Context) (bool, error) { return len(r.alive()) == pods, nil })
	for i := 2; i < pods; i++ {
		r.pod(fmt.Sprintf("custom-%d", i), "1500m", owned)
	}
	r.running("custom-", pods)
	r.settled(pods)
}

// TestRoomIsKept has pods of a burst arrive slower than their nodes, beside pods of others that would take the room: every
// node goes to the pods it was bought for.
func TestRoomIsKept(t *testing.T) {
	const pods, others = 80, 20
	r := startWith(t, bed.Options{Cluster: slowControllers, Emulator: ec2emu.Options{Seed: 25}})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("small", 0, onePerNode)
	r.pod("warm", "1500m")
	r.running("warm", 1)
	r.apply(burst(pods))
	for i := range others {
		r.pod(fmt.Sprintf("other-%d", i), "1000m")
	}
	r.running("ahead-", pods)
	r.running("other-", others)
	if got := r.counter("slipway_provisioner_off_plan_total"); got != 0 {
		t.Errorf("%v pods landed on nodes that were bought for others", got)
	}
	if got := len(r.Emulator.Instances()); got != 1+pods+others {
		t.Errorf("%d instances for %d pods of one a node", got, 1+pods+others)
	}
	if _, second := r.watch.Claims(); second != 0 {
		t.Errorf("a second node was bought for %d pods", second)
	}
}
