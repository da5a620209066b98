// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// Command is nodes that go together, and what is bought instead.
type Command struct {
	Record

	Going    []*Node
	Launches []plan.Launch
	// Copies are claims to be written as the pool's template says, for static pools.
	Copies []*Pool
	// Placements are where the pods go that need nothing bought.
	Placements []plan.Placement
	// Drift is what has drifted, for reason Drifted.
	Drift string
	// Kind is Karpenter's consolidation type: empty, single or multi; "" for what is not consolidation.
	Kind string
	// Forced commands ask neither budgets nor pods, and do not wait for what they buy: the node's own deadline has passed.
	Forced bool

	pools map[string]*Pool // those of the snapshot
}

// Decision is what one pass has decided.
type Decision struct {
	Commands   []*Command
	Rejections []Rejection
	// Quotas are what budgets leave after the commands.
	Quotas map[string]*Quota
	// Eligible counts the nodes each reason could be applied to.
	Eligible map[karpv1.DisruptionReason]int
	// More says that consolidation has put off some of what there is to look at: another pass is worth its while.
	More bool
}

// decider is one pass.
type decider struct {
	s      *Snapshot
	m      *Memory
	at     *world
	out    Decision
	taken  map[*Node]bool
	told   map[*Node]int   // the position of its rejection, from 1
	claims map[string]bool // names of all claims, made by leaving
	going  bool            // some node is leaving
	// vain counts groups that were not worth replacing.
	vain   int
	agenda *agenda
	why    map[*Node]string // why nodes could not be emptied
}

// Decide chooses the commands to start. It is a function of the snapshot and of what m remembers; m may be new.
func Decide(s *Snapshot, m *Memory) Decision {
	d := &decider{s: s, m: m, taken: map[*Node]bool{}, told: map[*Node]int{}}
	d.out.Quotas, d.out.Eligible = Quotas(s), map[karpv1.DisruptionReason]int{}
	d.expired()
	d.repair()
	d.emptiness()
	d.staticDrift()
	d.drift()
	d.expiring()
	d.underutilized()
	d.explain()
	m.forget(s)
	return d.out
}

// world makes the world when it is first needed: most passes at rest never do.
func (d *decider) world() *world {
	if d.at == nil {
		d.at = newWorld(d.s)
		for n := range d.taken {
			d.at.apply([]*Node{n}, plan.Result{})
		}
	}
	return d.at
}

// candidates are the nodes that may be disrupted for the reason and want chooses, with an event for those that may not.
func (d *decider) candidates(reason karpv1.DisruptionReason, c class, want func(*Node) bool) []*Node {
	var out []*Node
	for _, n := range d.s.Nodes {
		if d.taken[n] || n.Record != nil || n.Leaving() || !want(n) {
			continue
		}
		if why := d.m.calming(n, d.s.Now); why != "" {
			d.reject(n, eventBlocked, why)
			continue
		}
		if why, told := d.s.blocker(n, c); why != "" {
			if told {
				d.reject(n, eventBlocked, why)
			}
			continue
		}
		if optional(reason) {
			if d.expects(n) {
				d.reject(n, eventBlocked, "Node is nominated for a pending pod")
				continue
			}
			if pod := d.s.wanted(n); pod != "" {
				d.reject(n, eventBlocked, wantedBy(pod))
				continue
			}
			if n.KeptFree {
				d.reject(n, eventBlocked, blockedByBuffer)
				continue
			}
		}
		out = append(out, n)
	}
	d.out.Eligible[reason] += len(out)
	return out
}

// expects reports whether pods of nodes that are leaving will come to the node: it was bought in exchange for one of them, or
// has the room they need.
func (d *decider) expects(n *Node) bool {
	if !d.leaving() {
		return false
	}
	for _, old := range splitNames(n.Claim.Annotations[capacity.ReplacesAnnotation]) {
		if d.claims[old] {
			return true
		}
	}
	return d.world().feeds(n)
}

// leaving reports whether any node is going or belongs to a command, and notes which claims there are.
func (d *decider) leaving() bool {
	if d.claims == nil {
		d.claims = make(map[string]bool, len(d.s.Nodes))
		for _, n := range d.s.Nodes {
			d.claims[n.Claim.Name] = true
			d.going = d.going || n.Disrupted()
		}
	}
	return d.going
}

// add takes budget for a command and notes it; false if a budget is used up.
func (d *decider) add(c *Command) bool {
	if !c.Forced {
		if !take(d.out.Quotas, c.Reason, c.Going) {
			return false
		}
	}
	if d.at != nil {
		d.at.apply(c.Going, plan.Result{})
		d.at.charge(c.Launches)
	}
	for _, n := range c.Going {
		d.taken[n] = true
		c.Nodes = append(c.Nodes, n.Claim.Name)
	}
	c.Since, c.pools = d.s.Now, d.s.Pools
	c.ID = commandID(c)
	for i, l := range c.Launches {
		c.Replacements = append(c.Replacements, replacementName(l.Pool.Name, c.ID, i))
	}
	for i, p := range c.Copies {
		c.Replacements = append(c.Replacements, replacementName(p.Name, c.ID, len(c.Launches)+i))
	}
	d.out.Commands = append(d.out.Commands, c)
	return true
}

// hasBudget reports whether the pool's budgets leave anything for the reason.
func (d *decider) hasBudget(n *Node, reason karpv1.DisruptionReason) bool {
	q := d.out.Quotas[n.PoolName()]
	return q != nil && q.Left(reason) > 0
}

// commandID follows from the claims and the instant.
func commandID(c *Command) string {
	h := sha256.New()
	for _, n := range c.Going {
		fmt.Fprintf(h, "%s/%s;", n.Claim.UID, n.Claim.Name)
	}
	fmt.Fprint(h, c.Since.UnixNano())
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// emptiness deletes nodes on which nothing would have to move.
func (d *decider) emptiness() {
	list := d.candidates(karpv1.DisruptionReasonEmpty, graceful, func(n *Node) bool {
		if n.Node == nil || n.Pool == nil || !n.Empty() {
			return false
		}
		if why, told := n.unconsolidatable(); why != "" && n.Price() != 0 {
			d.unwanted(n, why, told)
			return false
		}
		return !n.Pool.Static() && d.consolidatable(n)
	})
	slices.SortStableFunc(list, func(a, b *Node) int { return cmp.Compare(b.Price(), a.Price()) })
	for _, n := range list {
		if !d.add(&Command{Record: Record{Reason: karpv1.DisruptionReasonEmpty, Saving: n.Price()}, Going: []*Node{n}, Kind: "empty"}) {
			d.reject(n, "", stayBudget(karpv1.DisruptionReasonEmpty))
		}
	}
}

// consolidatable reports whether the pool's consolidateAfter has passed since the last pod came to or left the node.
func (d *decider) consolidatable(n *Node) bool {
	at, ok := consolidatableAt(n, d.m.lastPod(n))
	if ok && d.s.Now.Before(at) {
		d.reject(n, "", staySettle)
	}
	return ok && !d.s.Now.Before(at)
}

// consolidatableAt is when consolidation may look at the node; never, if the pool says so or the node was not usable yet.
// lastPod is when a pod came or went last, as far as the claim does not say.
func consolidatableAt(n *Node, lastPod time.Time) (time.Time, bool) {
	since, ok := n.condition(karpv1.ConditionTypeInitialized)
	if !ok || n.Pool == nil || n.Pool.Spec.Disruption.ConsolidateAfter.Duration == nil {
		return time.Time{}, false
	}
	if t := n.Claim.Status.LastPodEventTime.Time; !t.IsZero() {
		since = t
	}
	if lastPod.After(since) {
		since = lastPod
	}
	return since.Add(*n.Pool.Spec.Disruption.ConsolidateAfter.Duration), true
}

// drift replaces nodes that are not any more what their pool or class asks for, in each pool the empty ones first and then
// the one that has been drifted for longest.
func (d *decider) drift() {
	drifted := map[*Node]string{}
	list := d.candidates(karpv1.DisruptionReasonDrifted, eventual, func(n *Node) bool {
		if n.Pool == nil || n.Pool.Static() {
			return false
		}
		drifted[n] = d.s.Drift(n)
		return drifted[n] != "" && !d.rests(n, karpv1.DisruptionReasonDrifted)
	})
	d.sortDrifted(list)
	d.replaceEach(list, func(n *Node) *Command {
		return &Command{Record: Record{Reason: karpv1.DisruptionReasonDrifted}, Drift: drifted[n]}
	})
}

// replaceEach replaces nodes whose turn has come one by one, within the budgets. Plans cost most of a pass: of a pool whose nodes'
// pods find no places, the rest waits for the next one.
func (d *decider) replaceEach(list []*Node, command func(*Node) *Command) {
	if len(list) > 0 {
		d.world().closeAll(list)
	}
	failures := map[string]int{}
	for _, n := range list {
		c := command(n)
		stay := ""
		switch {
		case !d.hasBudget(n, c.Reason):
			stay = stayBudget(c.Reason)
		case d.at.feeds(n):
			stay = stayFed
		case failures[n.PoolName()] >= failuresMost:
			stay = stayTurn
		}
		if stay != "" {
			d.reject(n, "", stay)
			continue
		}
		if why, known := d.m.homeless[n.Claim.Name].holds(n, d.s.Now); known {
			d.reject(n, eventBlocked, why)
			continue
		}
		if d.replaceOne(n, c) {
			failures[n.PoolName()] = 0
		} else {
			failures[n.PoolName()]++
		}
	}
}

// rests reports whether the node's pool is left alone after a failure.
func (d *decider) rests(n *Node, reason karpv1.DisruptionReason) bool {
	if !d.m.resting(n.PoolName(), reason, d.s.Now) {
		return false
	}
	d.reject(n, eventBlocked, stayRest)
	return true
}

func (d *decider) sortDrifted(list []*Node) {
	since := func(n *Node) time.Time {
		if t, ok := n.condition(karpv1.ConditionTypeDrifted); ok {
			return t
		}
		return d.s.Now
	}
	slices.SortStableFunc(list, func(a, b *Node) int {
		if a.Empty() != b.Empty() {
			if a.Empty() {
				return -1
			}
			return 1
		}
		return cmp.Or(since(a).Compare(since(b)), strings.Compare(a.Claim.Name, b.Claim.Name))
	})
}

// replaceOne makes a command of one node whose pods all have a place without it, or says which has none and remembers that; then
// it returns false.
func (d *decider) replaceOne(n *Node, c *Command) bool {
	c.Going = []*Node{n}
	if len(n.Plan) == 0 {
		d.add(c)
		return true
	}
	r := d.world().replace(c.Going)
	if len(r.Unplaced) > 0 {
		u := r.Unplaced[0]
		why := fmt.Sprintf("Not all pods would schedule, %s => %s", u.Pod.NamespacedName, u.Detail)
		d.m.homeless[n.Claim.Name] = verdictOn(n, d.s.Now, why)
		d.reject(n, eventBlocked, why)
		return false
	}
	c.Launches, c.Placements = r.Launches, r.Placements
	c.Saving = n.Price() - price(r.Launches)
	if d.add(c) {
		d.at.apply(c.Going, r)
	}
	return true
}
