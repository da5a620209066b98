// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// TestPath follows one pod all the way and checks what Karpenter's contract and the architecture promise on it.
func TestPath(t *testing.T) {
	r := start(t, ec2emu.Options{Seed: 1})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("one", 0)
	r.pod("warm", "1500m") // launch templates are being made while the first pod comes
	r.running("warm", 1)
	before := len(r.Emulator.Requests())
	pod := r.pod("lonely", "1500m")
	r.running("lonely", 1)

	claims := slices.DeleteFunc(r.claims(), func(c karpv1.NodeClaim) bool { return c.Annotations[provisioner.PodsAnnotation] != "default/lonely" })
	if len(claims) != 1 {
		t.Fatalf("%d NodeClaims for one pod, want 1", len(claims))
	}
	c := claims[0]
	fleets := r.fleets()[1:]
	if len(fleets) != 1 {
		t.Fatalf("%d CreateFleet requests that launched, want 1", len(fleets))
	}
	if got := fleets[0].Form.Get("ClientToken"); got != string(c.UID) {
		t.Errorf("client token %q, want the claim's UID %q", got, c.UID)
	}
	for _, q := range r.Emulator.Requests()[before:] {
		if strings.Contains(q.Action, "LaunchTemplate") && q.At.Before(fleets[0].At) {
			t.Errorf("%s was called in the launch path", q.Action)
		}
	}
	i := r.alive()[1]
	if got := i.Tags["slipway.sh/launch"]; got != string(c.UID) {
		t.Errorf("tag slipway.sh/launch is %q, want %q", got, c.UID)
	}
	if !c.CreationTimestamp.Time.Before(fleets[0].At.Add(time.Second)) {
		t.Errorf("NodeClaim was created %v, after EC2 was called %v", c.CreationTimestamp, fleets[0].At)
	}

	r.within(20*time.Second, "the claim to be initialized", func(ctx context.Context) (bool, error) {
		if err := r.kube.Get(ctx, client.ObjectKeyFromObject(&c), &c); err != nil {
			return false, err
		}
		return c.StatusConditions().Root().IsTrue(), nil
	})
	for _, cond := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
		if !c.StatusConditions().Get(cond).IsTrue() {
			t.Errorf("condition %s is not true", cond)
		}
	}
	var n corev1.Node
	if err := r.kube.Get(t.Context(), types.NamespacedName{Name: c.Status.NodeName}, &n); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		karpv1.NodePoolLabelKey: "one", "pool": "one", karpv1.NodeRegisteredLabelKey: "true", karpv1.NodeInitializedLabelKey: "true",
		karpv1.CapacityTypeLabelKey: i.CapacityType, corev1.LabelInstanceTypeStable: i.InstanceType, corev1.LabelTopologyZone: i.Zone,
	}
	for k, v := range want {
		if n.Labels[k] != v {
			t.Errorf("node label %s is %q, want %q", k, n.Labels[k], v)
		}
	}
	if len(n.Spec.Taints) != 0 {
		t.Errorf("node still has taints %v", n.Spec.Taints)
	}
	if diff := cmp.Diff([]string{karpv1.TerminationFinalizer}, n.Finalizers); diff != "" {
		t.Errorf("node finalizers (-want +got):\n%s", diff)
	}
	if err := r.kube.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	if pod.Spec.NodeName != n.Name {
		t.Errorf("pod is on %q, want the node bought for it, %q", pod.Spec.NodeName, n.Name)
	}
}

// TestUsersManifests applies the samples unmodified and lets their Deployment run, spread over zones.
func TestUsersManifests(t *testing.T) {
	r := start(t, ec2emu.Options{Seed: 2})
	r.applySample("general/ec2nodeclass.yaml")
	r.applySample("general/nodepools.yaml")
	r.awaitPools("default", "stable", "gpu")
	r.applySample("general/deployment.yaml")
	r.running("web-api-", 6)
	zones := map[string]int{}
	for _, p := range r.watch.Pods("web-api-") {
		var n corev1.Node
		if err := r.kube.Get(t.Context(), types.NamespacedName{Name: p.Node}, &n); err != nil {
			t.Fatal(err)
		}
		zones[n.Labels[corev1.LabelTopologyZone]]++
	}
	if diff := cmp.Diff(map[string]int{"us-east-1a": 2, "us-east-1b": 2, "us-east-1c": 2}, zones); diff != "" {
		t.Errorf("pods a zone (-want +got):\n%s", diff)
	}
	if _, second := r.watch.Claims(); second != 0 {
		t.Errorf("a second node was bought for %d pods", second)
	}
}

// TestBurstSharesCalls checks that equal claims share a CreateFleet call and that no pod is bought for twice.
func TestBurstSharesCalls(t *testing.T) {
	r := start(t, ec2emu.Options{Seed: 3})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("small", 0, "- {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}")
	r.apply(`apiVersion: apps/v1
kind: Deployment
metadata: {name: burst, namespace: default}
spec:
  replicas: 40
  selector: {matchLabels: {app: burst}}
  template:
    metadata: {labels: {app: burst}}
    spec:
      schedulerName: slipway
      containers:
      - {name: c, image: "registry.example/c:1", resources: {requests: {cpu: "1500m"}}}
`)
	r.running("burst-", 40)
	if got := len(r.alive()); got != 40 {
		t.Errorf("%d instances for 40 pods of one a node, want 40", got)
	}
	if got := len(r.fleets()); got > 20 {
		t.Errorf("%d CreateFleet requests for 40 equal claims: they do not share calls", got)
	}
	if _, second := r.watch.Claims(); second != 0 {
		t.Errorf("a second node was bought for %d pods", second)
	}
	var d appsv1.Deployment
	if err := r.kube.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "burst"}, &d); err != nil {
		t.Fatal(err)
	}
}

// TestInstanceGone checks that the node of an instance that is terminated from outside goes away, and that the pod's
// replacement gets a node of its own.
func TestInstanceGone(t *testing.T) {
	r := start(t, ec2emu.Options{Seed: 4})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("one", 0)
	r.pod("first", "1")
	r.running("first", 1)
	i := r.alive()[0]
	r.Emulator.Terminate(i.ID)
	r.within(60*time.Second, "the node to be NotReady or gone", func(ctx context.Context) (bool, error) {
		var n corev1.Node
		if err := r.kube.Get(ctx, types.NamespacedName{Name: i.NodeName}, &n); err != nil {
			return true, client.IgnoreNotFound(err)
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status != corev1.ConditionTrue, nil
			}
		}
		return false, nil
	})
}
