// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// resourceNodes is the key the number of nodes has in a pool's status.resources and spec.limits.
const resourceNodes corev1.ResourceName = "nodes"

// count sets the pool's status.resources and status.nodes: the capacity of its claims that are not being deleted, as
// the Node reports it once it has joined, before that as it was bought.
func (r *PoolReconciler) count(ctx context.Context, pool *karpv1.NodePool, claims []karpv1.NodeClaim) error {
	sum := corev1.ResourceList{}
	for _, name := range [...]corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage,
	} {
		sum[name] = resource.Quantity{}
	}
	nodes := int64(0)
	for i := range claims {
		claim := &claims[i]
		if !claim.DeletionTimestamp.IsZero() {
			continue
		}
		size, err := r.sizeOf(ctx, claim)
		if err != nil {
			return err
		}
		if len(size) == 0 {
			continue // nothing has been bought for it yet
		}
		nodes++
		for name, q := range size {
			total := sum[name]
			total.Add(q)
			sum[name] = total
		}
	}
	sum[resourceNodes] = *resource.NewQuantity(nodes, resource.DecimalSI)
	pool.Status.Resources, pool.Status.Nodes = sum, &nodes
	return nil
}

func (r *PoolReconciler) sizeOf(ctx context.Context, claim *karpv1.NodeClaim) (corev1.ResourceList, error) {
	if claim.Status.NodeName == "" {
		return claim.Status.Capacity, nil
	}
	node := &corev1.Node{}
	err := r.Kube.Get(ctx, types.NamespacedName{Name: claim.Status.NodeName}, node)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading node %q: %w", claim.Status.NodeName, err)
	}
	if err != nil || node.DeletionTimestamp != nil {
		return claim.Status.Capacity, nil //nolint:nilerr // a node that is gone counts as it was bought
	}
	// A resource a device plugin has not reported yet is counted as it was bought.
	size := claim.Status.Capacity.DeepCopy()
	if size == nil {
		size = corev1.ResourceList{}
	}
	for name, q := range node.Status.Capacity {
		if !q.IsZero() {
			size[name] = q
		}
	}
	return size, nil
}
