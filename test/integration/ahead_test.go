// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
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
