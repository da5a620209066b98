// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// Defaults against churn; a pool moves them by annotation.
const (
	// DefaultMinSaving is the least part of their price that nodes have to save by being replaced. Nodes whose pods fit on
	// what is there need no such limit: they save all of it.
	DefaultMinSaving = 0.03
	// DefaultMinNodeAge is how long a node is left alone after it was initialized, unless it is empty.
	DefaultMinNodeAge = 10 * time.Minute
)

const (
	// groupSize bounds how many nodes are replaced together: what is in one command has to wait for all of it.
	groupSize = 16
	// vainMost bounds the groups of one pass that turn out not to be worth replacing. The others wait for the next pass, a second
	// later, so that a cluster at rest is looked through bit by bit.
	vainMost = 8
	// settleRounds bounds how often nodes whose pods do not all fit are taken out of a set and the rest is tried again.
	settleRounds = 8
	// settledFor and settledShare keep a node that consolidation has bought from being replaced again: for so long, as long as so
	// much of what it was bought for is still there.
	settledFor   = 24 * time.Hour
	settledShare = 0.8
	// spotRisk is what a replacement of spot by spot has to save beyond the minimum, divided by the number of spot pools
	// (instance type and zone) it can be bought from: one pool is far likelier to be taken back than the deepest of many.
	spotRisk = 0.30
)

// underutilized takes away nodes whose pods fit elsewhere, and replaces nodes by cheaper ones.
//
//  1. shrink: the nodes that cost most for what they disturb are emptied into the room of the others
//  2. what they would be: one plan.Solve for all of them, which knows the rules about topology
//  3. replace: nodes that cost more than their pods are worth are planned anew in groups, and what a group would buy is
//     taken apart into the smallest moves of M nodes onto N
func (d *decider) underutilized() {
	list := d.candidates(karpv1.DisruptionReasonUnderutilized, graceful, func(n *Node) bool {
		if n.Node == nil || n.Pool == nil || n.Empty() {
			return false
		}
		if why, told := n.unconsolidatable(); why != "" {
			d.unwanted(n, why, told)
			return false
		}
		return d.consolidatable(n) && d.oldEnough(n)
	})
	if len(list) == 0 {
		return
	}
	slices.SortStableFunc(list, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(b.Price()/b.Cost, a.Price()/a.Cost), strings.Compare(a.Claim.Name, b.Claim.Name))
	})
	d.agenda = d.newAgenda(list)
	b := d.balance(list)
	sh := newShrink(d.world(), list)
	d.why = sh.why
	chosen, placed := d.settle(sh, sh.choose(d, list, b))
	for _, n := range chosen {
		c := &Command{Record: Record{Reason: karpv1.DisruptionReasonUnderutilized, Saving: n.Price()}, Going: []*Node{n}, Kind: "single"}
		for _, p := range n.Plan {
			c.Placements = append(c.Placements, placed[p])
		}
		d.add(c)
	}
	d.replace(sh.rest(d, list), b)
	for _, n := range list { // of whom nothing was said because another one's turn came first
		switch {
		case d.taken[n]:
		case d.at.feeds(n):
			d.reject(n, "", stayFed)
		default:
			d.reject(n, "", cmp.Or(sh.why[n], stayTurn))
		}
	}
}

// noCheaper is what Karpenter says of nodes it would have to pay as much for as before.
const noCheaper = "Can't replace with a cheaper node"

// unconsolidatable remembers and says why the node can neither be emptied nor replaced.
func (d *decider) unconsolidatable(n *Node, message string) {
	if why := d.why[n]; why != "" && why != message && why != stayBudget(karpv1.DisruptionReasonUnderutilized) && why != stayFed {
		message += "; " + why
	}
	d.m.remember(n, d.s.Now, message)
	d.reject(n, eventUnconsolidatable, message)
}

// oldEnough reports whether the node may be consolidated although pods still run on it, and says why if not.
func (d *decider) oldEnough(n *Node) bool {
	since, ok := n.condition(karpv1.ConditionTypeInitialized)
	if !ok {
		return false
	}
	least := n.minAge()
	switch age := d.s.Now.Sub(since); {
	case age < least:
		d.reject(n, eventUnconsolidatable, fmt.Sprintf("Node has pods and was initialized less than %s ago (annotation %s of the NodePool)", least, capacity.MinNodeAgeAnnotation))
		return false
	case age < settledFor && n.settled():
		d.reject(n, eventUnconsolidatable, fmt.Sprintf("Node was bought by consolidation less than %s ago and still holds what it was bought for", settledFor))
		return false
	}
	return true
}

// minAge is how long the node is left alone after it was initialized, unless it is empty.
func (n *Node) minAge() time.Duration {
	return ptr.Deref(n.Pool.Settings.MinNodeAge, DefaultMinNodeAge)
}

// settled reports whether consolidation has bought the node and it still holds about what it was bought for. To replace it again
// would be to correct oneself, at the expense of its pods.
func (n *Node) settled() bool {
	if n.Claim.Annotations[ReplacedForAnnotation] != string(karpv1.DisruptionReasonUnderutilized) || n.Planned == nil {
		return false
	}
	was := capacity.FromList(n.Claim.Spec.Resources.Requests)
	return float64(n.Planned.Used.CPU) >= settledShare*float64(was.CPU) && float64(n.Planned.Used.Memory) >= settledShare*float64(was.Memory)
}

// settle finds the places for all pods of the chosen nodes together and drops nodes whose pods do not all find one, until the
// rest does. The world then has the nodes out and the pods in place.
func (d *decider) settle(sh *shrink, chosen []*Node) ([]*Node, map[*capacity.Pod]plan.Placement) {
	for range settleRounds {
		if len(chosen) == 0 {
			return nil, nil
		}
		r := d.at.move(chosen, sh.order)
		if len(r.Unplaced) == 0 {
			d.at.apply(chosen, r)
			placed := make(map[*capacity.Pod]plan.Placement, len(r.Placements))
			for _, p := range r.Placements {
				placed[p.Pod] = p
			}
			return chosen, placed
		}
		stuck := map[string]string{}
		for _, u := range r.Unplaced {
			stuck[string(u.Pod.UID)] = fmt.Sprintf("Not all pods would schedule, %s fits on no node that is there", u.Pod.NamespacedName)
		}
		chosen = slices.DeleteFunc(chosen, func(n *Node) bool {
			for _, p := range n.Plan {
				if why, ok := stuck[string(p.UID)]; ok {
					sh.why[n] = why
					return true
				}
			}
			return false
		})
	}
	for _, n := range chosen {
		sh.why[n] = "Not all pods would schedule"
	}
	return nil, nil
}

// replace plans nodes anew that cost more than their pods are worth, in groups.
func (d *decider) replace(list []*Node, b *balance) {
	for {
		list = slices.DeleteFunc(list, func(n *Node) bool {
			switch {
			case !d.hasBudget(n, karpv1.DisruptionReasonUnderutilized):
				d.reject(n, "", stayBudget(karpv1.DisruptionReasonUnderutilized))
			case d.at.feeds(n):
				d.reject(n, "", stayFed)
			default:
				return d.rests(n, karpv1.DisruptionReasonUnderutilized)
			}
			return true
		})
		if len(list) == 0 {
			return
		}
		if d.agenda.pods <= 0 || d.vain >= vainMost {
			d.out.More = true
			return
		}
		k := d.agenda.group(list)
		d.replaceGroup(list[:k], b)
		list = list[k:]
	}
}

// replaceGroup makes commands of what the group would be bought anew as. A group that saves nothing is tried by halves.
func (d *decider) replaceGroup(group []*Node, b *balance) {
	if len(group) == 0 || d.vain >= vainMost {
		return
	}
	d.agenda.pods -= len(pods(group))
	r := d.at.replace(group)
	message := noCheaper
	if len(r.Unplaced) > 0 {
		message = fmt.Sprintf("Not all pods would schedule, %s => %s", r.Unplaced[0].Pod.NamespacedName, r.Unplaced[0].Detail)
	} else {
		made := false
		short := map[*Node]bool{} // only a budget stood against their command
		for _, c := range components(group, r) {
			if slices.ContainsFunc(c.Going, d.at.feeds) {
				continue // pods of another part of the group go there
			}
			if why := d.approve(c, b); why != "" {
				message = why
				continue
			}
			if !d.add(c) {
				for _, n := range c.Going {
					short[n] = len(c.Going) == 1 // of many, one may be within the budget
					d.reject(n, "", stayBudget(karpv1.DisruptionReasonUnderutilized))
				}
				continue
			}
			made = true
			d.at.apply(c.Going, plan.Result{Placements: c.Placements})
		}
		group = slices.DeleteFunc(slices.Clone(group), func(n *Node) bool { return d.taken[n] || short[n] })
		if made || len(group) == 0 { // what is left has had its chance beside the others; it is looked at again when these are done
			return
		}
	}
	d.vain++
	if len(group) > 1 && (len(r.Unplaced) > 0 || saves(group, r)) {
		half := len(group) / 2
		d.replaceGroup(group[:half], b)
		d.replaceGroup(group[half:], b)
		return
	}
	for _, n := range group {
		d.unconsolidatable(n, message)
	}
}

// saves reports whether the group's plan saves enough for a part of the group to be worth it. What is bought for pods together
// costs no more than what is bought for parts of them, so that no part saves more than the whole.
func saves(group []*Node, r plan.Result) bool {
	before, least := 0.0, math.Inf(1)
	for _, n := range group {
		before += n.Price()
		least = min(least, n.Price()*ptr.Deref(n.Pool.Settings.MinSaving, DefaultMinSaving))
	}
	return before-price(r.Launches) >= max(least, 1e-9)
}

// components takes a plan for a group apart: nodes belong together that have pods on one launch.
func components(group []*Node, r plan.Result) []*Command {
	owner := map[*capacity.Pod]int{}
	for i, n := range group {
		for _, p := range n.Plan {
			owner[p] = i
		}
	}
	root := make([]int, len(group))
	for i := range root {
		root[i] = i
	}
	var find func(int) int
	find = func(i int) int {
		if root[i] != i {
			root[i] = find(root[i])
		}
		return root[i]
	}
	for _, l := range r.Launches {
		for _, p := range l.Pods[1:] {
			root[find(owner[p])] = find(owner[l.Pods[0]])
		}
	}
	by := map[int]*Command{}
	var out []*Command
	for i, n := range group {
		c := by[find(i)]
		if c == nil {
			c = &Command{Record: Record{Reason: karpv1.DisruptionReasonUnderutilized}, Kind: "single"}
			by[find(i)] = c
			out = append(out, c)
		}
		if c.Going = append(c.Going, n); len(c.Going) > 1 {
			c.Kind = "multi"
		}
	}
	for _, l := range r.Launches {
		c := by[find(owner[l.Pods[0]])]
		c.Launches = append(c.Launches, l)
	}
	for _, p := range r.Placements {
		c := by[find(owner[p.Pod])]
		c.Placements = append(c.Placements, p)
	}
	return out
}

// approve says why a command is not worth it, if it is not.
func (d *decider) approve(c *Command, b *balance) string {
	if why := worthwhile(c); why != "" {
		return why
	}
	return b.refuses(c)
}
