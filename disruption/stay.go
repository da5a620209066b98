// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"fmt"
	"slices"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Rejection is a node that is left as it is, and why.
type Rejection struct {
	Node *Node
	// Event is the reason of the event to write: DisruptionBlocked, Unconsolidatable, NodeRepairBlocked; empty for none.
	Event   string
	Message string
}

// Events that say why a node stays, by Karpenter's names.
const (
	eventBlocked          = "DisruptionBlocked"
	eventUnconsolidatable = "Unconsolidatable"
	eventRejected         = "ConsolidationRejected"
	eventRepairBlocked    = "NodeRepairBlocked"
)

// reject notes why a node stays; the first reason of a pass counts, of those that are news if there is one.
func (d *decider) reject(n *Node, event, message string) {
	r := Rejection{Node: n, Event: event, Message: message}
	switch i := d.told[n]; {
	case i == 0:
		d.out.Rejections = append(d.out.Rejections, r)
		d.told[n] = len(d.out.Rejections)
	case event != "" && d.out.Rejections[i-1].Event == "":
		d.out.Rejections[i-1] = r
	}
}

// explain notes why each node stays that nothing was said of yet.
func (d *decider) explain() {
	for _, n := range d.s.Nodes {
		if d.taken[n] || d.told[n] > 0 || n.Disrupted() {
			continue
		}
		why, _ := d.s.blocker(n, repair) // its pods do not matter as nobody has asked
		if why == "" {
			why = stayNothing
		}
		d.reject(n, "", why)
	}
	d.out.Rejections = slices.DeleteFunc(d.out.Rejections, func(r Rejection) bool { return d.taken[r.Node] })
}

// Reasons to stay that are no news: they are said of the pool, or the next pass knows more.
const (
	stayFed     = "Node takes the pods of nodes that are going"
	stayTurn    = "Its turn has not come in this pass"
	staySettle  = "NodePool's consolidateAfter has not passed since a pod came or went last"
	stayNothing = "Nothing asks for its disruption"
	stayRest    = "NodePool is left alone for a while, because a replacement for one of its nodes did not come"
)

// unwanted notes why consolidation leaves the node alone for good.
func (d *decider) unwanted(n *Node, why string, told bool) {
	event := ""
	if told {
		event = eventUnconsolidatable
	}
	d.reject(n, event, why)
}

// stayBudget is that the pool's budgets leave nothing for the reason.
func stayBudget(reason karpv1.DisruptionReason) string {
	return fmt.Sprintf("No allowed disruptions for disruption reason %s due to blocking budget", reason)
}
