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

// Decision is what one pass has decided.
type Decision struct {
	Commands   []*Command
	Rejections []Rejection
	// Quotas are what budgets leave after the commands.
	Quotas map[string]*Quota
	// Eligible counts the nodes each reason could be applied to.
	Eligible map[karpv1.DisruptionReason]int
}

// decider is one pass.
type decider struct {
	s      *Snapshot
	m      *Memory
	at     *world
	out    Decision
	taken  map[*Node]bool
	told   map[*Node]bool
	claims map[string]bool // names of all claims, made by leaving
	going  bool            // some node is leaving
	// vain counts groups that were not worth replacing.
	vain int
}

// Decide chooses the commands to start. It is a function of the snapshot and of what m remembers; m may be new.
func Decide(s *Snapshot, m *Memory) Decision {
	d := &decider{s: s, m: m, taken: map[*Node]bool{}, told: map[*Node]bool{}}
	d.out.Quotas, d.out.Eligible = Quotas(s), map[karpv1.DisruptionReason]int{}
	d.expired()
	d.repair()
	d.emptiness()
	d.staticDrift()
	d.drift()
	d.expiring()
	d.underutilized()
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

// reject notes why a node stays; the first reason of a pass counts.
func (d *decider) reject(n *Node, event, message string) {
	if d.told[n] {
		return
	}
	d.told[n] = true
	d.out.Rejections = append(d.out.Rejections, Rejection{Node: n, Event: event, Message: message})
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

// expired ends nodes whose time is over, whatever budgets say, as Karpenter does; what their pods need is bought at once.
func (d *decider) expired() {
	for _, n := range d.s.Nodes {
		at, ok := expireAt(n)
		if !ok || n.Record != nil || n.Leaving() || d.s.Now.Before(at) {
			continue // a command that was begun ends its own nodes
		}
		c := &Command{Record: Record{Reason: ReasonExpired}, Going: []*Node{n}, Forced: true}
		if n.Planned != nil && len(n.Plan) > 0 {
			r := d.world().replace(c.Going)
			c.Launches, c.Placements = r.Launches, r.Placements
			d.at.apply(c.Going, r)
		}
		d.add(c)
	}
}

// expireAt is when the claim's time is over.
func expireAt(n *Node) (time.Time, bool) {
	d := n.Claim.Spec.ExpireAfter.Duration
	if d == nil {
		return time.Time{}, false
	}
	return n.Claim.CreationTimestamp.Add(*d), true
}

// The soft window before a node's end, in which it is replaced inside the budget: the last tenth of its life, a day at most.
// Where in it a node's turn comes follows from its UID, so that nodes born together do not go together.
const (
	softShare = 10
	softMost  = 24 * time.Hour
)

// softAt is when a node's turn to be replaced comes.
func softAt(n *Node) (time.Time, bool) {
	end, ok := expireAt(n)
	if !ok {
		return end, false
	}
	window := min(*n.Claim.Spec.ExpireAfter.Duration/softShare, softMost)
	sum := sha256.Sum256([]byte(n.Claim.UID))
	jitter := time.Duration(int64(window) / 2 / 256 * int64(sum[0])) // the later half is left for trying
	return end.Add(-window + jitter), true
}

// emptiness deletes nodes on which nothing would have to move.
func (d *decider) emptiness() {
	list := d.candidates(karpv1.DisruptionReasonEmpty, graceful, func(n *Node) bool {
		if n.Node == nil || n.Pool == nil || !n.Empty() {
			return false
		}
		if why, _ := n.unconsolidatable(); why != "" && n.Price() != 0 {
			return false
		}
		return !n.Pool.Static() && d.consolidatable(n)
	})
	slices.SortStableFunc(list, func(a, b *Node) int { return cmp.Compare(b.Price(), a.Price()) })
	for _, n := range list {
		d.add(&Command{Record: Record{Reason: karpv1.DisruptionReasonEmpty, Saving: n.Price()}, Going: []*Node{n}, Kind: "empty"})
	}
}

// consolidatable reports whether the pool's consolidateAfter has passed since the last pod came to or left the node.
func (d *decider) consolidatable(n *Node) bool {
	at, ok := consolidatableAt(n, d.m.lastPod(n))
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
		if n.Pool == nil || n.Pool.Static() || d.m.resting(n.PoolName(), karpv1.DisruptionReasonDrifted, d.s.Now) {
			return false
		}
		drifted[n] = d.s.Drift(n)
		return drifted[n] != ""
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
		if !d.hasBudget(n, c.Reason) || d.at.feeds(n) || failures[n.PoolName()] >= failuresMost {
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

// expiring replaces nodes whose turn has come before their end, inside the budget. It waits for what blocks eviction, whatever the
// node's terminationGracePeriod: the time in which the node may take pods along is not over.
func (d *decider) expiring() {
	list := d.candidates(ReasonExpired, graceful, func(n *Node) bool {
		at, ok := softAt(n)
		return ok && !d.s.Now.Before(at) && n.Pool != nil && !n.Pool.Static() && !d.m.resting(n.PoolName(), ReasonExpired, d.s.Now)
	})
	slices.SortStableFunc(list, func(a, b *Node) int {
		x, _ := expireAt(a)
		y, _ := expireAt(b)
		return x.Compare(y)
	})
	d.replaceEach(list, func(*Node) *Command { return &Command{Record: Record{Reason: ReasonExpired}} })
}
