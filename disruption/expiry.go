// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"crypto/sha256"
	"slices"
	"time"
)

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

// expiring replaces nodes whose turn has come before their end, inside the budget. It waits for what blocks eviction, whatever the
// node's terminationGracePeriod: the time in which the node may take pods along is not over.
func (d *decider) expiring() {
	list := d.candidates(ReasonExpired, graceful, func(n *Node) bool {
		at, ok := softAt(n)
		return ok && !d.s.Now.Before(at) && n.Pool != nil && !n.Pool.Static() && !d.rests(n, ReasonExpired)
	})
	slices.SortStableFunc(list, func(a, b *Node) int {
		x, _ := expireAt(a)
		y, _ := expireAt(b)
		return x.Compare(y)
	})
	d.replaceEach(list, func(*Node) *Command { return &Command{Record: Record{Reason: ReasonExpired}} })
}
