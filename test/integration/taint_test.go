// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/test/ec2emu"
)

// TestUndeclaredTaint has an agent put a taint on a node, which its pool does not declare, before the node is initialized: the
// pod it was bought for and one that comes meanwhile wait for the taint to go, and run on that node. (Case C02.)
func TestUndeclaredTaint(t *testing.T) {
	r := start(t, ec2emu.Options{Seed: 1})
	r.applySample("general/ec2nodeclass.yaml")
	r.apply(poolManifest("tainted", "default", 0) + "      startupTaints: [{key: example.com/boot, effect: NoSchedule}]\n")
	r.awaitPools("tainted")
	r.pod("first", "1500m")
	node := &corev1.Node{}
	r.within(90*time.Second, "a registered node with its startup taint", func(ctx context.Context) (bool, error) {
		var nodes corev1.NodeList
		err := r.kube.List(ctx, &nodes, client.MatchingLabels{karpv1.NodeRegisteredLabelKey: "true"})
		if err != nil || len(nodes.Items) == 0 {
			return false, err
		}
		*node = nodes.Items[0]
		return true, nil
	})
	taints := func(change func([]corev1.Taint) []corev1.Taint) {
		r.within(20*time.Second, "the node's taints to be written", func(ctx context.Context) (bool, error) {
			if err := r.kube.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
				return false, err
			}
			before := node.DeepCopy()
			node.Spec.Taints = change(node.Spec.Taints)
			return r.kube.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})) == nil, nil
		})
	}
	without := func(key string) func([]corev1.Taint) []corev1.Taint {
		return func(list []corev1.Taint) []corev1.Taint {
			return slices.DeleteFunc(slices.Clone(list), func(t corev1.Taint) bool { return t.Key == key })
		}
	}
	agent := corev1.Taint{Key: "example.com/agent-not-ready", Effect: corev1.TaintEffectNoSchedule}
	taints(func(list []corev1.Taint) []corev1.Taint { return append(without("example.com/boot")(list), agent) })
	r.within(30*time.Second, "the claim to wait for the taint", func(context.Context) (bool, error) {
		c := r.claims()[0]
		return c.StatusConditions().Get(karpv1.ConditionTypeInitialized).Reason == "UndeclaredTaintsExist", nil
	})
	second := r.pod("second", "100m")
	r.within(30*time.Second, "the second pod to be planned on the node that is there", func(ctx context.Context) (bool, error) {
		err := r.kube.Get(ctx, client.ObjectKeyFromObject(second), second)
		return second.Status.NominatedNodeName == node.Name, err
	})
	taints(without(agent.Key))
	r.running("first", 1)
	r.running("second", 1)
	if n := len(r.fleets()); n != 1 || len(r.claims()) != 1 {
		t.Errorf("%d launches and %d claims for two pods that share a node, want one", n, len(r.claims()))
	}
}
