// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
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

// ailing is since when a condition has made the node broken; false if none has lasted long enough.
func (n *Node) ailing(now time.Time) (since time.Time, ok bool) {
	if n.Node == nil {
		return time.Time{}, false
	}
	for _, a := range ailments() {
		for i := range n.Node.Status.Conditions {
			c := &n.Node.Status.Conditions[i]
			if from := c.LastTransitionTime.Time; c.Type == a.kind && c.Status == a.status && now.Sub(from) >= a.lasts {
				return from, true
			}
		}
	}
	return time.Time{}, false
}

// repair replaces broken nodes, in each pool the one that has been broken for longest first, unless too many are.
func (d *decider) repair() {
	if !d.s.Repair {
		return
	}
	broken, nodes := map[string]int{}, map[string]int{}
	for _, n := range d.s.Nodes {
		nodes[n.PoolName()]++
		if _, ok := n.ailing(d.s.Now); ok {
			broken[n.PoolName()]++
		}
	}
	list := d.candidates(ReasonUnhealthy, repair, func(n *Node) bool {
		_, ok := n.ailing(d.s.Now)
		return ok && n.Pool != nil && !d.m.resting(n.PoolName(), ReasonUnhealthy, d.s.Now)
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
		}
	}
}
