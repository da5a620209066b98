// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// limit is what is left of a pool's limits while a plan takes from it.
type limit struct {
	limited   []corev1.ResourceName
	max, used capacity.Resources
	nodes     int64 // left; -1 without a limit
}

func limitOf(p *capacity.Pool) limit {
	l := limit{max: capacity.FromList(p.Limits), used: p.Usage, nodes: -1}
	for name := range p.Limits {
		l.limited = append(l.limited, name)
	}
	slices.Sort(l.limited)
	if p.LimitNodes != nil {
		l.nodes = max(*p.LimitNodes-p.Nodes, 0)
	}
	return l
}

// allows reports whether one more node of this capacity stays inside the limits.
func (l *limit) allows(c capacity.Resources) bool {
	if l.nodes == 0 {
		return false
	}
	for _, name := range l.limited {
		if l.used.Get(name)+c.Get(name) > l.max.Get(name) {
			return false
		}
	}
	return true
}

func (l *limit) take(c capacity.Resources) {
	l.used = l.used.Add(c)
	if l.nodes > 0 {
		l.nodes--
	}
}

// give takes back what take took.
func (l *limit) give(c capacity.Resources) {
	l.used = l.used.Sub(c)
	if l.nodes >= 0 {
		l.nodes++
	}
}

// String says how much of each limited resource is used.
func (l *limit) String() string {
	var parts []string
	for _, name := range l.limited {
		parts = append(parts, fmt.Sprintf("%s of %s %s in use", capacity.FormatQuantity(name, l.used.Get(name)), capacity.FormatQuantity(name, l.max.Get(name)), name))
	}
	if l.nodes == 0 {
		parts = append(parts, "the limit on nodes is reached")
	}
	return strings.Join(parts, ", ")
}

// spare reports whether the limits leave room for extra capacity on nodes already counted.
func (l *limit) spare(extra capacity.Resources) bool {
	for _, name := range l.limited {
		if l.used.Get(name)+extra.Get(name) > l.max.Get(name) {
			return false
		}
	}
	return true
}

// share is the largest part of what the limits leave that a node of this capacity takes; 0 without limits.
func (l *limit) share(c capacity.Resources) float64 {
	most := 0.0
	if l.nodes > 0 {
		most = 1 / float64(l.nodes)
	}
	for _, name := range l.limited {
		if left := l.max.Get(name) - l.used.Get(name); left > 0 {
			most = max(most, min(float64(c.Get(name))/float64(left), 1))
		}
	}
	return most
}

// mostStrain and lessStrains are what all that the limits leave counts as, in parts of the price of the plan that ran into them.
// Under the first hardly anything but the limits counts; of the others, the first that places as many pods obeys them most cheaply.
const mostStrain = 1000

func lessStrains() []float64 { return []float64{0.25, 1, 4, 16} }

// underLimits packs anew where a limit kept pods out: nodes count dearer by what they take of the limits, so that fewer or
// smaller ones hold more. If that places no more pods even where next to nothing else counts, all is as it was.
func (k *packer) underLimits(first int) {
	if len(k.s.bins) == first || !slices.ContainsFunc(k.rows, (*row).limited) {
		return
	}
	bound := k.bound
	best := k.takeBack(k.s.bins[first:])
	price := max(best.price(), minPrice)
	try := func(strain float64) attempt {
		k.strain = strain * price
		k.renew()
		k.buyAll()
		return k.takeBack(k.s.bins[first:])
	}
	if most := try(mostStrain); most.left < best.left {
		best = most
		for _, strain := range lessStrains() {
			if a := try(strain); a.left <= best.left {
				best = a
				break
			}
		}
	}
	k.strain, k.bound, k.program = 0, bound, nil
	for _, b := range best.bins {
		b.sh.cost = k.costOf(b.sh) // without the strain
		b.cost = b.sh.cost
	}
	k.putBack(best)
	k.renew()
}

// maxGrown bounds how often a node is looked for that can be exchanged for a larger one for the sake of a limit.
const maxGrown = 100

// grow makes room for pods that a limit keeps out on nodes opened before, those for pods of higher priority included: nodes are
// exchanged for larger ones of their pool, the least dearer for each pod first.
func (k *packer) grow() {
	tries := 0
	for _, r := range k.rows {
		for r.left > 0 && r.limited() && tries < maxGrown {
			tries++
			if !k.growOne(r) {
				break
			}
		}
	}
}

// growOne exchanges one node for a larger one that has room for more pods of the row; false if there is none.
func (k *packer) growOne(r *row) bool {
	var best *bin
	var to *shape
	least := math.Inf(1)
	for _, b := range k.s.bins {
		if b.reservation() != "" || b.pool.minValues || !slices.ContainsFunc(r.items, func(it *item) bool { return it.left > 0 && it.masks[b.pool.index] != nil && b.beside(it, 1) > 0 }) {
			continue
		}
		used := b.requests()
		for _, sh := range k.allShapes {
			if sh.pool != b.pool || sh.reservation() != "" || sh.cost <= b.cost || !sh.takes(r.set) || !b.mayBe(sh.offering) {
				continue
			}
			n := min(r.request.Count(sh.pool.free[sh.kind].Sub(used)), int64(r.left))
			if per := (sh.cost - b.cost) / float64(n); n > 0 && per < least && k.exchanges(b, sh) {
				best, to, least = b, sh, per
			}
		}
	}
	if best == nil {
		return false
	}
	k.s.refund(best)
	best.become(to)
	k.s.charge(best)
	return r.give(best, r.left) > 0
}

// exchanges reports whether the limits allow to exchange the bin for one of the shape.
func (k *packer) exchanges(b *bin, sh *shape) bool {
	k.s.refund(b)
	ok := k.affords(sh)
	k.s.charge(b)
	return ok
}

// mayBe reports whether all pods of the bin accept the offering.
func (b *bin) mayBe(offering int) bool {
	return !slices.ContainsFunc(b.takes, func(t take) bool { return !t.it.masks[b.pool.index].set.Has(offering) })
}

// become makes the bin one of the shape.
func (b *bin) become(sh *shape) {
	b.pool, b.chosen, b.sh, b.cost = sh.pool, sh.offering, sh, sh.cost
	b.free = sh.pool.free[sh.kind].Sub(b.requests())
}

// limited reports whether a limit is what keeps pods of the row out.
func (r *row) limited() bool {
	return slices.ContainsFunc(r.items, func(it *item) bool { return it.left > 0 && it.why == LimitReached })
}

// left is how many pods have no place.
func (k *packer) left() int {
	n := 0
	for _, r := range k.rows {
		n += r.left
	}
	return n
}

// renew makes the shapes anew and forgets what the rows were worth.
func (k *packer) renew() {
	clear(k.favours)
	k.allShapes = nil
	k.makeShapes()
	for _, r := range k.rows {
		r.value, r.next = 0, 0
	}
}
