// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// Snapshot is the cluster at one instant, as deciding needs it. It is not modified once it is made.
type Snapshot struct {
	Now  time.Time
	View *capacity.View
	// Pools are the NodePools of node classes Slipway owns, by name.
	Pools map[string]*Pool
	// Nodes are the NodeClaims of such classes with what belongs to them, sorted by claim name.
	Nodes []*Node
	// Repair says that broken nodes are to be replaced.
	Repair bool
	// Waiting are pods that are about to be planned, one of each kind.
	Waiting []*capacity.Pod
	// yielded are the NodePools whose class somebody else owns.
	yielded []*karpv1.NodePool
	// Paused is why no pod is to be evicted that need not be, empty if nothing speaks against it.
	Paused string
	// limits are the PodDisruptionBudgets.
	limits limits
	// instances are what EC2 says, by provider ID; nil while it has not been asked. asked is when it was.
	instances map[string]ec2.Instance
	asked     time.Time
	// unseen are claims written a moment ago that the cache does not show, with their pools.
	unseen map[string]string
}

// Pool is a NodePool with its node class and what its annotations say.
type Pool struct {
	*karpv1.NodePool

	Class    *v1.EC2NodeClass // nil if there is none
	Settings capacity.PoolSettings
}

// Static reports whether the pool keeps a fixed number of nodes.
func (p *Pool) Static() bool { return p.Spec.Replicas != nil }

// Node is a NodeClaim with its Node and the pods on it.
type Node struct {
	Claim *karpv1.NodeClaim
	Node  *corev1.Node // nil until it has joined
	Pool  *Pool        // nil if it is gone
	// Planned is the node in the view, nil if it is not there.
	Planned *capacity.Node
	*Load
	// Awaited says that pods that are not bound yet were planned on the node.
	Awaited bool
	// KeptFree says that room of capacity buffers is on the node.
	KeptFree bool
	// Record is the command the claim belongs to, nil if it belongs to none.
	Record *Record
	// deleted says that this process has deleted the claim, whatever the cache shows.
	deleted bool
}

// Load are the pods of a node. It is made anew only when one of them changes.
type Load struct {
	// Pods are those on the node that have not ended.
	Pods []*corev1.Pod
	// Moving are those of them that need a place elsewhere when the node goes, and Plan the same pods as the planner knows them.
	Moving []*corev1.Pod
	Plan   []*capacity.Pod
	// largest are the pods of Plan, the largest first.
	largest []*capacity.Pod
	// guarded are the pods that ask not to be disrupted, for now or for ever.
	guarded []*corev1.Pod
	// Cost is what disrupting the node counts: 1 and the eviction cost of each pod that moves.
	Cost float64
	// sum is equal for loads with the same pods to move.
	sum uint64
}

// PoolName is the name of the claim's NodePool.
func (n *Node) PoolName() string { return n.Claim.Labels[karpv1.NodePoolLabelKey] }

// Price is what the node costs in US dollars an hour, 0 if that is not known.
func (n *Node) Price() float64 {
	if n.Planned == nil {
		return 0
	}
	return n.Planned.Price
}

// Initialized reports whether the node has been usable once.
func (n *Node) Initialized() bool {
	return n.Node != nil && n.Node.Labels[karpv1.NodeInitializedLabelKey] == "true"
}

// Ready reports whether the kubelet says that it is.
func (n *Node) Ready() bool {
	if n.Node == nil {
		return false
	}
	for i := range n.Node.Status.Conditions {
		if c := &n.Node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Leaving reports whether the node is being deleted.
func (n *Node) Leaving() bool {
	return n.deleted || n.Claim.DeletionTimestamp != nil || n.Node != nil && n.Node.DeletionTimestamp != nil
}

// Disrupted reports whether the node is being deleted or belongs to a command.
func (n *Node) Disrupted() bool { return n.Leaving() || n.Record != nil }

// Empty reports whether nothing would have to move that counts (Karpenter's IsEmpty): pods whose eviction cost is zero or less
// do not.
func (n *Node) Empty() bool { return n.Cost <= baseCost }

// Policy is the pool's consolidation policy.
func (n *Node) Policy() karpv1.ConsolidationPolicy { return n.Pool.Spec.Disruption.ConsolidationPolicy }

// condition returns the instant since which a condition of the claim is true.
func (n *Node) condition(name string) (since time.Time, ok bool) {
	for i := range n.Claim.Status.Conditions {
		if c := &n.Claim.Status.Conditions[i]; c.Type == name && c.IsTrue() {
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}
