// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// wish is what pods of some rows would like of their node: preferred node affinity, and no taint that keeps pods off if
// possible. What a node does not meet makes a pod count dearer there, by the weight in percent of what its room costs at least.
type wish struct {
	weight []float64        // by term, in parts
	met    [][]capacity.Set // by pool, then term: the offerings whose nodes meet it
	avoid  []float64        // by pool: what its taints weigh
}

// avoidWeight is what a PreferNoSchedule taint that is not tolerated weighs, in parts: as much as the heaviest preference.
const avoidWeight = 1

// wishOf is the wish of a class and its number, 0 if it has none. Classes of equal wishes share it.
func (k *packer) wishOf(c *capacity.Class) int {
	pools := k.s.pools[k.from:k.to]
	if len(c.Preferred) == 0 && !slices.ContainsFunc(pools, func(q *pool) bool { return c.Avoids(q.Taints) > 0 }) {
		return 0
	}
	var b strings.Builder
	for _, t := range c.Preferred {
		fmt.Fprintf(&b, "%d %s|", t.Weight, spell(t.Requirements))
	}
	for _, q := range pools {
		fmt.Fprintf(&b, " %d", c.Avoids(q.Taints))
	}
	if n, ok := k.wishIDs[b.String()]; ok {
		return n
	}
	w := &wish{met: make([][]capacity.Set, len(k.s.pools)), avoid: make([]float64, len(k.s.pools))}
	for _, t := range c.Preferred {
		w.weight = append(w.weight, float64(t.Weight)/100)
	}
	for _, q := range pools {
		w.avoid[q.index] = avoidWeight * float64(c.Avoids(q.Taints))
		if q.Catalog == nil || q.Blocked != "" {
			continue
		}
		for _, t := range c.Preferred {
			w.met[q.index] = append(w.met[q.index], q.preferred(t.Requirements))
		}
	}
	if len(k.wishes) == 0 {
		k.wishes = []*wish{nil}
	}
	k.wishes = append(k.wishes, w)
	k.wishIDs[b.String()] = len(k.wishes) - 1
	return len(k.wishes) - 1
}

// meets are the offerings whose nodes are sure to satisfy the term.
func (q *pool) meets(term capacity.Requirements) capacity.Set {
	for key, want := range term {
		if q.Catalog.Defines(key) {
			continue
		}
		have, ok := q.Requirements[key]
		switch {
		case !ok && want.AllowsAbsent():
		case !ok || !have.Finite() || len(have.Values()) != 1 || !want.Has(have.Values()[0]):
			return capacity.NewSet(len(q.Catalog.Offerings))
		}
	}
	return q.Catalog.Match(term)
}

// unmet is what the wish leaves to be desired of an offering, in parts.
func (w *wish) unmet(q *pool, offering int) float64 {
	sum := w.avoid[q.index]
	for t, met := range w.met[q.index] {
		if !met.Has(offering) {
			sum += w.weight[t]
		}
	}
	return sum
}

// most is the most the wish can leave to be desired, in parts.
func (w *wish) most() float64 {
	sum := slices.Max(w.avoid)
	for _, v := range w.weight {
		sum += v
	}
	return sum
}

// wishCost is what one pod of the piece counts dearer on the shape, in US dollars an hour.
func (p *piece) wishCost(sh *shape) float64 {
	if p.wish == 0 {
		return 0
	}
	return p.base * sh.unmet[p.wish]
}

// worthOn is what one pod of the piece is worth on the shape. However little it likes it, it is worth something there.
func (p *piece) worthOn(sh *shape) float64 {
	if p.wish == 0 {
		return p.value
	}
	return max(p.value-p.wishCost(sh), p.value/100)
}

// priceWishes sets what the rows' wishes go by: what the room of one of their pods costs at least.
func (k *packer) priceWishes() {
	if len(k.wishes) == 0 {
		return
	}
	for _, r := range k.rows {
		if r.wish == 0 {
			continue
		}
		rate := 0.0
		for _, sh := range k.shapes {
			if e := sh.price / k.bulk(sh.room); sh.takes(r.set) && (rate == 0 || e < rate) {
				rate = e
			}
		}
		r.base = rate * k.bulk(r.size)
	}
}

// costs is what the bin counts with the wishes of its pods on a shape.
func (k *packer) costs(b *bin, sh *shape) float64 {
	sum := sh.cost
	if len(k.wishes) > 0 {
		for _, t := range b.takes {
			if t.it.row != nil {
				sum += float64(t.n) * t.it.row.wishCost(sh)
			}
		}
	}
	return sum
}

// liked narrows the offerings of a bin to those that leave no more to be desired than the one it was chosen for: else EC2 might
// take another.
func (b *bin) liked(m *mask) *mask {
	for _, t := range b.takes {
		for _, p := range t.it.d.class.Preferred {
			if met := b.pool.preferred(p.Requirements); met.Has(b.chosen) {
				m = b.pool.intern(m.set.And(met))
			}
		}
	}
	return m
}

// preferred is meets, computed once.
func (q *pool) preferred(term capacity.Requirements) capacity.Set {
	key := spell(term)
	set, ok := q.preferences[key]
	if !ok {
		set = q.meets(term)
		q.preferences[key] = set
	}
	return set
}
