// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// doNotRepairAnnotation on a Node or NodeClaim with the value "true" keeps it from being repaired (Karpenter's).
const doNotRepairAnnotation = "karpenter.sh/do-not-repair"

// ailment is a node condition that makes a node broken once it has lasted for long enough.
type ailment struct {
	kind   corev1.NodeConditionType
	status corev1.ConditionStatus
	lasts  time.Duration
}

// ailments are those of Karpenter's AWS provider: the kubelet's own, and those the EKS node monitoring agent reports.
func ailments() []ailment {
	return []ailment{
		{corev1.NodeReady, corev1.ConditionFalse, 30 * time.Minute},
		{corev1.NodeReady, corev1.ConditionUnknown, 30 * time.Minute},
		{"AcceleratedHardwareReady", corev1.ConditionFalse, 10 * time.Minute},
		{"StorageReady", corev1.ConditionFalse, 30 * time.Minute},
		{"NetworkingReady", corev1.ConditionFalse, 30 * time.Minute},
		{"KernelReady", corev1.ConditionFalse, 30 * time.Minute},
		{"ContainerRuntimeReady", corev1.ConditionFalse, 30 * time.Minute},
	}
}

// breakerShare is the part of a pool's nodes, rounded up, that may be broken at once: beyond it the fault is likely not the
// nodes' own, and replacing them would make it worse (Karpenter's 20 %).
const breakerShare = 5

// repairGrace is how long the pods of a node that is repaired have to leave (Karpenter's repair policies for AWS): nobody there
// answers for them any more.
const repairGrace = 10 * time.Minute

// trouble is the condition that makes the node broken first, however short it has lasted, nil if none does.
func (n *Node) trouble() *corev1.NodeCondition {
	found, _ := n.illness()
	return found
}

// illness is trouble and from when on it is to be repaired.
func (n *Node) illness() (found *corev1.NodeCondition, due time.Time) {
	if n.Node == nil {
		return nil, due
	}
	for _, a := range ailments() {
		for i := range n.Node.Status.Conditions {
			c := &n.Node.Status.Conditions[i]
			if c.Type != a.kind || c.Status != a.status {
				continue
			}
			if at := c.LastTransitionTime.Add(a.lasts); found == nil || at.Before(due) {
				found, due = c, at
			}
		}
	}
	return found, due
}

// ailing is since when a condition has made the node broken; false if none has lasted long enough.
func (n *Node) ailing(now time.Time) (since time.Time, ok bool) {
	c, due := n.illness()
	if c == nil || now.Before(due) {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, true
}

// repair replaces broken nodes, in each pool the one that has been broken for longest first, unless too many are.
func (d *decider) repair() {
	if !d.s.Repair {
		return
	}
	broken, nodes := map[string]int{}, map[string]int{}
	for _, n := range d.s.Nodes {
		if n.Node == nil {
			continue
		}
		nodes[n.PoolName()]++
		if n.trouble() != nil { // however short: a fault that spreads is to be seen before nodes are due
			broken[n.PoolName()]++
		}
	}
	list := d.candidates(ReasonUnhealthy, repair, func(n *Node) bool {
		_, ok := n.ailing(d.s.Now)
		return ok && n.Pool != nil && !d.rests(n, ReasonUnhealthy)
	})
	slices.SortStableFunc(list, func(a, b *Node) int {
		x, _ := a.ailing(d.s.Now)
		y, _ := b.ailing(d.s.Now)
		return x.Compare(y)
	})
	for _, n := range list {
		pool := n.PoolName()
		switch most := (nodes[pool] + breakerShare - 1) / breakerShare; {
		case n.Node.Annotations[doNotRepairAnnotation] == "true" || n.Claim.Annotations[doNotRepairAnnotation] == "true":
			d.reject(n, eventRepairBlocked, fmt.Sprintf("Repair is blocked through the %q annotation", doNotRepairAnnotation))
		case broken[pool] > most:
			d.reject(n, eventRepairBlocked, fmt.Sprintf("More than 20%% nodes are unhealthy in the nodepool (%d of %d)", broken[pool], nodes[pool]))
		case d.hasBudget(n, ReasonUnhealthy):
			c := &Command{Record: Record{Reason: ReasonUnhealthy}}
			if n.Pool.Static() { // its number is kept by who keeps it
				c.Going = []*Node{n}
				d.add(c)
				continue
			}
			d.replaceOne(n, c)
		default:
			d.reject(n, "", stayBudget(ReasonUnhealthy))
		}
	}
}

// bound sets the deadline by which the pods of a broken node are gone, unless it has an earlier one.
func (c *Controller) bound(ctx context.Context, n *Node) error {
	grace := repairGrace
	if g := n.Claim.Spec.TerminationGracePeriod; g != nil {
		grace = min(grace, g.Duration)
	}
	deadline := c.Clock.Now().Add(grace)
	const key = karpv1.NodeClaimTerminationTimestampAnnotationKey
	if at, err := time.Parse(time.RFC3339, n.Claim.Annotations[key]); err == nil && at.Before(deadline) {
		return nil
	}
	claim := n.Claim.DeepCopy()
	if claim.Annotations == nil {
		claim.Annotations = map[string]string{}
	}
	claim.Annotations[key] = deadline.UTC().Format(time.RFC3339)
	if err := c.Kube.Patch(ctx, claim, client.MergeFrom(n.Claim)); err != nil {
		return fmt.Errorf("noting the termination time of NodeClaim %q: %w", claim.Name, err)
	}
	return nil
}
