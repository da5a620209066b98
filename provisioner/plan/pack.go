// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// bin is a node to buy.
type bin struct {
	id     string
	pool   *pool
	index  int // of the pool
	chosen int // the offering the node was chosen for
	mask   capacity.Set
	custom capacity.Requirements
	free   capacity.Resources
	used   capacity.Resources
	ports  []capacity.HostPort
	pods   []*capacity.Pod
	steps  []int
}

// shape is a candidate: one offering of a pool filled with what suits it.
type shape struct {
	index    int
	offering int
	price    float64
	counts   []take
	value    float64
}

// take is how many pods of an item go into a shape.
type take struct {
	it *item
	n  int
}

// efficiency is the worth of what the shape holds per dollar.
func (sh shape) efficiency() float64 { return sh.value / sh.price }

// evenness is how much of the best efficiency may be given up for a smaller node: nodes that cost the same per unit are
// bought small, so that a workload does not end on one huge node.
const evenness = 0.01

// pack opens new nodes until every item is placed or stuck. Items are in order of size; the first one that still has
// pods decides which pool is used, the best shape of that pool is filled with it and with whatever else suits.
func (s *solver) pack(items []*item) {
	worths := map[int32]worth{}
	for _, it := range items {
		s.fillBins(it)
		for len(it.pods) > 0 {
			sh, ok := s.choose(it, items, worths)
			if !ok {
				break
			}
			s.open(sh)
		}
	}
}

// fillBins puts pods of the item into nodes already opened.
func (s *solver) fillBins(it *item) {
	for _, b := range s.bins {
		if len(it.pods) == 0 {
			return
		}
		if n := b.room(it); n > 0 {
			s.put(b, it, n)
		}
	}
}

// room is how many pods of the item the bin can still take.
func (b *bin) room(it *item) int {
	m := it.masks[b.index]
	if m == nil || !m.Has(b.chosen) || !compatible(b.custom, it.custom[b.index]) || portsClash(b.ports, it.d.class.HostPorts) {
		return 0
	}
	n := int(min(it.d.class.Requests.Count(b.free), int64(len(it.pods))))
	if len(it.d.class.HostPorts) > 0 {
		n = min(n, 1)
	}
	return min(n, it.d.hostRoom(b.id))
}

func compatible(a, b capacity.Requirements) bool {
	return len(a) == 0 || len(b) == 0 || a.Overlaps(b) == nil
}

// put moves n pods of the item into the bin. Domains were counted when the item was split off; hosts are counted here.
func (s *solver) put(b *bin, it *item, n int) {
	c := it.d.class
	for _, p := range it.pods[:n] {
		b.pods = append(b.pods, p)
		b.steps = append(b.steps, s.step)
		s.step++
	}
	it.pods = it.pods[n:]
	b.mask = b.mask.And(it.masks[b.index])
	if len(it.custom[b.index]) > 0 {
		b.custom = b.custom.And(it.custom[b.index])
	}
	b.free = b.free.AddTimes(c.Requests, -int64(n))
	b.used = b.used.AddTimes(c.Requests, int64(n))
	for range n {
		b.ports = append(b.ports, c.HostPorts...)
	}
	it.d.record(nil, b.id, n)
}

// choose finds the shape to open for the item: pools of the highest weight that can serve it, then the best efficiency.
func (s *solver) choose(it *item, items []*item, worths map[int32]worth) (shape, bool) {
	for i := 0; i < len(s.pools); {
		j := i
		for j < len(s.pools) && s.pools[j].Weight == s.pools[i].Weight {
			j++
		}
		w, ok := worths[s.pools[i].Weight]
		if !ok {
			w = s.appraise(i, j, items)
			worths[s.pools[i].Weight] = w
		}
		if sh, ok := s.best(i, j, it, items, w); ok {
			return sh, true
		}
		i = j
	}
	return shape{}, false
}

func (s *solver) appraise(from, to int, items []*item) worth {
	var total capacity.Resources
	for _, it := range items {
		total = total.AddTimes(it.d.class.Requests, int64(len(it.pods)))
	}
	var offers []offer
	for _, p := range s.pools[from:to] {
		if p.Blocked != "" || p.Catalog == nil {
			continue
		}
		seen := make([]bool, len(p.Catalog.Types))
		for o := range p.open.All {
			if t := p.Catalog.TypeOf(o); !seen[t] {
				seen[t] = true
				offers = append(offers, offer{free: p.free[t], price: p.Catalog.Offerings[o].Price})
			}
		}
	}
	return appraise(total, offers)
}

// candidate is an offering with an upper bound on its efficiency.
type candidate struct {
	index, offering int
	bound           float64
}

// best is the most efficient shape for the item among the pools, or a smaller one that is nearly as good.
func (s *solver) best(from, to int, it *item, items []*item, w worth) (shape, bool) {
	var demand float64
	for _, o := range items {
		demand += w.of(o.d.class.Requests) * float64(len(o.pods))
	}
	cands := s.candidates(from, to, it, w, demand)
	var kept []shape
	top := 0.0
	for _, c := range cands {
		if c.bound < top*(1-evenness) {
			break
		}
		sh := s.fill(c, it, items, w)
		if len(sh.counts) == 0 {
			continue
		}
		kept = append(kept, sh)
		top = max(top, sh.efficiency())
	}
	if len(kept) == 0 {
		return shape{}, false
	}
	kept = slices.DeleteFunc(kept, func(sh shape) bool { return sh.efficiency() < top*(1-evenness) })
	return slices.MinFunc(kept, func(a, b shape) int {
		return cmp.Or(cmp.Compare(a.price, b.price), cmp.Compare(b.value, a.value), cmp.Compare(a.index, b.index), cmp.Compare(a.offering, b.offering))
	}), true
}

// candidates lists, for each type and capacity type, the cheapest offering that serves the item inside the pool's
// limits, best bound first. Why there is none is left on the item.
func (s *solver) candidates(from, to int, it *item, w worth, demand float64) []candidate {
	type shapeKey struct {
		t  int
		ct string
	}
	var out []candidate
	for i := from; i < to; i++ {
		p, mask := s.pools[i], it.masks[i]
		if mask == nil {
			continue
		}
		seen := map[shapeKey]bool{}
		limited := false
		for o := range mask.All {
			off := &p.Catalog.Offerings[o]
			t := p.Catalog.TypeOf(o)
			k := shapeKey{t, off.CapacityType}
			if seen[k] {
				continue
			}
			seen[k] = true
			if !p.left.allows(off.Type.Capacity) {
				limited = true
				continue
			}
			bound := min(w.of(p.free[t]), demand) / off.Price
			out = append(out, candidate{index: i, offering: o, bound: bound})
		}
		if limited && len(out) == 0 {
			it.blocked(LimitReached, p.Name, p.left.String())
		}
	}
	slices.SortStableFunc(out, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.bound, a.bound), cmp.Compare(a.index, b.index), cmp.Compare(a.offering, b.offering))
	})
	return out
}

// blocked notes why the item cannot go to the pool; the reason that came nearest stays.
func (it *item) blocked(why Reason, pool, detail string) {
	if why.rank() > it.why.rank() {
		it.why, it.whyPool, it.whyDetail = why, pool, detail
	}
}

// fill puts one pod of the item into the shape and then, again and again, the pod that matches the room left best: the
// one whose request is most nearly proportional to it, larger ones first. Nothing is recorded: it is a trial.
func (s *solver) fill(c candidate, it *item, items []*item, w worth) shape {
	p := s.pools[c.index]
	t := p.Catalog.TypeOf(c.offering)
	sh := shape{index: c.index, offering: c.offering, price: p.Catalog.Offerings[c.offering].Price}
	f := filler{s: s, b: bin{id: "\x00trial", pool: p, index: c.index, chosen: c.offering, free: p.free[t]}, counts: map[*item]int{}}
	if !f.add(it, 1) {
		return sh
	}
	var others []*item
	for _, o := range items {
		if m := o.masks[c.index]; len(o.pods) > 0 && m != nil && m.Has(c.offering) {
			others = append(others, o)
		}
	}
	for len(others) > 0 {
		best, score := -1, -1.0
		others = slices.DeleteFunc(others, func(o *item) bool { return !f.fits(o) })
		for i, o := range others {
			if a := affinityTo(o.d.class.Requests, f.b.free); a > score {
				best, score = i, a
			}
		}
		if best >= 0 {
			f.add(others[best], 1)
		}
	}
	for _, o := range items {
		if n := f.counts[o]; n > 0 {
			sh.counts = append(sh.counts, take{it: o, n: n})
			sh.value += w.of(o.d.class.Requests) * float64(n)
		}
	}
	f.undo()
	return sh
}

// affinityTo is the cosine between a request and the free room in CPU and memory (1 core ≈ 4 GiB), weighted a little by
// size so that of equal directions the larger pod goes first.
func affinityTo(r, free capacity.Resources) float64 {
	rc, rm := float64(r.CPU), float64(r.Memory)/(4<<20)
	fc, fm := float64(free.CPU), float64(free.Memory)/(4<<20)
	rr, ff := rc*rc+rm*rm, fc*fc+fm*fm
	if rr == 0 || ff == 0 {
		return 0
	}
	dot := rc*fc + rm*fm
	return dot*dot/(rr*ff) + rr/ff*0.2
}

// filler is a bin being filled on trial; hosts are counted under a name of its own and taken back by undo.
type filler struct {
	s      *solver
	b      bin
	counts map[*item]int
}

func (f *filler) fits(o *item) bool {
	if f.counts[o] >= len(o.pods) {
		return false
	}
	saved := o.pods
	o.pods = o.pods[f.counts[o]:]
	n := f.b.room(o)
	o.pods = saved
	return n > 0
}

func (f *filler) add(o *item, n int) bool {
	if !f.fits(o) {
		return false
	}
	c := o.d.class
	f.counts[o] += n
	f.b.free = f.b.free.AddTimes(c.Requests, -int64(n))
	if len(c.HostPorts) > 0 {
		f.b.ports = append(slices.Clone(f.b.ports), c.HostPorts...)
	}
	if cu := o.custom[f.b.index]; len(cu) > 0 {
		f.b.custom = f.b.custom.And(cu)
	}
	o.d.record(nil, f.b.id, n)
	return true
}

func (f *filler) undo() {
	for o, n := range f.counts {
		o.d.record(nil, f.b.id, -n)
	}
}

// open buys the shape as often as the counts allow.
func (s *solver) open(sh shape) {
	p := s.pools[sh.index]
	t := p.Catalog.TypeOf(sh.offering)
	for {
		b := &bin{id: fmt.Sprintf("\x00new-%d", len(s.bins)), pool: p, index: sh.index, chosen: sh.offering, mask: p.open, free: p.free[t], used: p.overhead[t]}
		p.left.take(p.Catalog.Types[t].Capacity)
		s.bins = append(s.bins, b)
		for _, k := range sh.counts {
			if n := min(k.n, b.room(k.it)); n > 0 {
				s.put(b, k.it, n)
			}
		}
		for _, k := range sh.counts {
			if len(k.it.pods) < k.n {
				return
			}
		}
		if !p.left.allows(p.Catalog.Types[t].Capacity) {
			return
		}
	}
}
