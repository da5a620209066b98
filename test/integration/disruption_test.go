// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// disruptionPool is a pool of one node a pod whose nodes get a label.
func disruptionPool(generation string) string {
	return fmt.Sprintf(`apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: one}
spec:
  disruption: {consolidateAfter: 0s, budgets: [{nodes: "100%%"}]}
  template:
    metadata: {labels: {generation: %q}}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
`, generation)
}

// TestEmptinessAndDrift follows nodes to their end: one whose pod has gone, and one whose pool asks for something else.
func TestEmptinessAndDrift(t *testing.T) {
	r := startWith(t, bed.Options{Emulator: ec2emu.Options{Seed: 21}, SchedulerArgs: []string{"--disable-disruption=false"}})
	r.applySample("general/ec2nodeclass.yaml")
	r.apply(disruptionPool("first"))
	r.awaitPools("one")
	r.apply(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      schedulerName: slipway
      terminationGracePeriodSeconds: 0
      containers:
      - {name: c, image: "registry.example/c:1", resources: {requests: {cpu: "1500m"}}}
`)
	r.running("web-", 1)
	lonely := r.pod("lonely", "1500m")
	r.running("lonely", 1)
	if n := len(r.alive()); n != 2 {
		t.Fatalf("%d instances for two pods of one a node, want 2", n)
	}

	// Emptiness: the pod goes, and with it node, claim and instance.
	if err := r.kube.Get(t.Context(), client.ObjectKeyFromObject(lonely), lonely); err != nil {
		t.Fatal(err)
	}
	if err := r.kube.Delete(t.Context(), lonely, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	r.within(time.Minute, "the empty node to go", func(ctx context.Context) (bool, error) {
		err := r.kube.Get(ctx, types.NamespacedName{Name: lonely.Spec.NodeName}, &corev1.Node{})
		return client.IgnoreNotFound(err) == nil && err != nil && len(r.alive()) == 1 && len(r.claims()) == 1, client.IgnoreNotFound(err)
	})
	old := r.claims()

	// Drift: a node of the new kind is there before the old one goes.
	r.apply(disruptionPool("second"))
	r.within(90*time.Second, "the drifted node to be replaced", func(context.Context) (bool, error) {
		list := r.claims()
		return len(list) == 1 && list[0].Name != old[0].Name, nil
	})
	next := r.claims()[0]
	if next.Annotations[capacity.ReplacesAnnotation] != old[0].Name {
		t.Errorf("the claim replaces %q, want %q", next.Annotations[capacity.ReplacesAnnotation], old[0].Name)
	}
	r.running("web-", 1)
	var pods corev1.PodList
	if err := r.kube.List(t.Context(), &pods, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{"app": "web"}); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{}
	for _, p := range pods.Items {
		if p.DeletionTimestamp != nil {
			continue
		}
		if err := r.kube.Get(t.Context(), types.NamespacedName{Name: p.Spec.NodeName}, node); err != nil {
			t.Fatal(err)
		}
		if node.Labels["generation"] != "second" || node.Labels[karpv1.NodePoolLabelKey] != "one" {
			t.Errorf("the pod is on a node of generation %q", node.Labels["generation"])
		}
	}
	if launched := len(r.fleets()); launched != 3 {
		t.Errorf("%d launches, want 3: two for pods and one in exchange", launched)
	}
}
