// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// TestOtherScheduler plays default-scheduler: it says that a pod fits nowhere, and binds it when a node is there.
func TestOtherScheduler(t *testing.T) {
	r := startWith(t, bed.Options{Emulator: ec2emu.Options{Seed: 26}, SchedulerArgs: []string{"--serve-schedulers=default-scheduler"}})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("one", 0)
	theirs := func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" }
	r.pod("untried", "1500m", theirs)
	pod := r.pod("tried", "1500m", theirs)
	before := pod.DeepCopy()
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "no nodes available to schedule pods",
	})
	if err := r.kube.Status().Patch(t.Context(), pod, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	var node corev1.Node
	r.within(30*time.Second, "the node", func(ctx context.Context) (bool, error) {
		claims := r.claims()
		if len(claims) != 1 || claims[0].Status.NodeName == "" {
			return false, nil
		}
		err := r.kube.Get(ctx, types.NamespacedName{Name: claims[0].Status.NodeName}, &node)
		return err == nil, client.IgnoreNotFound(err)
	})
	if err := r.kube.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	if got := pod.Status.NominatedNodeName; got != "" {
		t.Errorf("pod of another scheduler was nominated to %q", got)
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}
	if err := r.Client.CoreV1().Pods("default").Bind(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.running("tried", 1)
	r.settled(1)
}
