// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// pending are the pods that have no node and could get one.
func (c *Controller) pending() []*corev1.Pod {
	return slices.DeleteFunc(podsOn(c.Pods, ""), func(p *corev1.Pod) bool {
		return ended(p) || p.DeletionTimestamp != nil || len(p.Spec.SchedulingGates) > 0 || ownedBy(p, "apps/v1", "DaemonSet")
	})
}

// observeWaiting notes one pod of each kind that is about to be planned. A pod whose node was usable for a while without the pod
// getting there is among them: nothing else says any more that it will take that very node.
func (c *Controller) observeWaiting(s *Snapshot) {
	known := map[*capacity.Class]bool{}
	for _, p := range c.pending() {
		if waits, _ := c.Seats.Waits(p.UID); !waits {
			continue
		}
		if q := c.Views.Pod(p); !known[q.Class] {
			known[q.Class] = true
			s.Waiting = append(s.Waiting, q)
		}
	}
}

// wanted names a pod that is about to be planned and could be planned on the node, empty if there is none. To take the node away
// would have another bought for it.
func (s *Snapshot) wanted(n *Node) string {
	if len(s.Waiting) == 0 || n.Planned == nil {
		return ""
	}
	open := *n.Planned
	open.Phase = capacity.Usable // as it is without a command
	open.Taints = slices.DeleteFunc(slices.Clone(open.Taints), disruptedTaint)
	free := open.Free()
	for _, p := range s.Waiting {
		if !p.Class.Requests.Fits(free) {
			continue
		}
		r := plan.Solve(plan.Input{View: &capacity.View{Nodes: []*capacity.Node{&open}}, Pods: []*capacity.Pod{p}})
		if len(r.Placements) > 0 {
			return p.NamespacedName.String()
		}
	}
	return ""
}

// settleEvery is how often what settle waits for is looked at.
const settleEvery = 50 * time.Millisecond

// settle waits until no pod can come to the nodes any more that were just tainted. A pod may be on its way that the scheduler has
// given one of them before it saw the taint: until the API server has that, the pod is one without a node which no plan knows. An
// error says which node's taint is not to be seen.
func (c *Controller) settle(ctx context.Context, commands []*Command) error {
	if c.Settle <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.Settle)
	defer cancel()
	// 1. The scheduler's cache has the taints.
	for _, cmd := range commands {
		for _, n := range cmd.Going {
			for n.Node != nil && !c.shown(n.Node.Name) {
				if !c.pause(ctx, settleEvery, nil) {
					return fmt.Errorf("the taint of node %q does not show in the cache", n.Node.Name)
				}
			}
		}
	}
	// 2. Every pod it may have had in hand by then has a node, or has failed to get one.
	open := map[types.UID]bool{}
	for _, p := range c.pending() {
		open[p.UID] = true
	}
	for len(open) > 0 {
		left := map[types.UID]bool{}
		for _, p := range c.pending() {
			if _, known := c.Seats.Waits(p.UID); open[p.UID] && !known {
				left[p.UID] = true
			}
		}
		if open = left; len(open) > 0 && !c.pause(ctx, settleEvery, nil) {
			return nil // it hangs for other reasons: the drain sees what comes this late
		}
	}
	return nil
}

// shown reports whether the cache has the node's taint, or not the node.
func (c *Controller) shown(node string) bool {
	n, err := c.Nodes.Get(node)
	return err != nil || n.DeletionTimestamp != nil || slices.ContainsFunc(n.Spec.Taints, disruptedTaint)
}
