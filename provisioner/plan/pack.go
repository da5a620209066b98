// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"math"
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

// lot is all items whose pods ask for the same resources: to the packing they are one size, and which of the items gives
// the pod is only a question of what may be where.
type lot struct {
	requests capacity.Resources
	cpu, mem float64 // in cores and units of 4 GiB
	value    float64 // worth of one pod
	left     int
	items    []*item
}

// packer packs the items of one tier into nodes of one group of pools of equal weight.
type packer struct {
	s        *solver
	from, to int // the pools
	lots     []*lot
	worth    worth
	free     [][]float64 // worth of a type's room, by pool (from from) and type
	demand   float64     // worth of all that is left
	fill     filler
	favours  map[*mask][]int // offerings that were good for a mask lately
	opened   int
}

// evenness is how much of the best efficiency may be given up for a smaller node: nodes that cost the same per unit are
// bought small, so that a workload does not end on one huge node.
const evenness = 0.01

// Bounds on the search for the best shape: how many candidates are tried, and for how many nodes the best of them are
// believed to stay the best.
const (
	maxCandidates = 24
	maxFavours    = 4
	favourFor     = 32
)

// pack opens new nodes until every item is placed or stuck: for each group of pools of equal weight, heaviest first, what
// earlier groups left over. Items are in order of size; the first that still has pods is the seed of the next node.
func (s *solver) pack(items []*item) {
	for _, it := range items {
		s.fillBins(it)
	}
	for from := 0; from < len(s.pools); {
		to := from + 1
		for to < len(s.pools) && s.pools[to].Weight == s.pools[from].Weight {
			to++
		}
		k := newPacker(s, from, to, items)
		for _, it := range items {
			k.place(it)
		}
		from = to
	}
}

// fillBins puts pods of the item into nodes already opened.
func (s *solver) fillBins(it *item) {
	for _, b := range s.bins {
		if len(it.pods) == 0 {
			return
		}
		if n := b.room(it, len(it.pods)); n > 0 {
			s.put(b, it, n)
		}
	}
}

func newPacker(s *solver, from, to int, items []*item) *packer {
	k := &packer{s: s, from: from, to: to, favours: map[*mask][]int{}}
	byRequest := map[string]*lot{}
	var total capacity.Resources
	for _, it := range items {
		if len(it.pods) == 0 || !it.served(from, to) {
			continue
		}
		r := it.d.class.Requests
		key := r.String()
		l := byRequest[key]
		if l == nil {
			l = &lot{requests: r, cpu: float64(r.CPU) / 1000, mem: float64(r.Memory) / (4 << 30)}
			byRequest[key] = l
			k.lots = append(k.lots, l)
		}
		it.lot = l
		l.items = append(l.items, it)
		l.left += len(it.pods)
		total = total.AddTimes(r, int64(len(it.pods)))
	}
	if len(k.lots) == 0 {
		return k
	}
	k.appraise(total)
	k.fill = filler{k: k, bin: bin{id: "\x00trial"}}
	return k
}

// served reports whether any of the pools can serve the item.
func (it *item) served(from, to int) bool {
	for _, m := range it.masks[from:to] {
		if m != nil {
			return true
		}
	}
	return false
}

// appraise sets the worth of resources for what is to be packed, and of every lot and type in it.
func (k *packer) appraise(total capacity.Resources) {
	var offers []offer
	for _, p := range k.s.pools[k.from:k.to] {
		k.free = append(k.free, nil)
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
	k.worth = appraise(total, offers)
	for i, p := range k.s.pools[k.from:k.to] {
		for t := range p.free {
			k.free[i] = append(k.free[i], k.worth.of(p.free[t]))
		}
	}
	for _, l := range k.lots {
		l.value = k.worth.of(l.requests)
		k.demand += l.value * float64(l.left)
	}
}

// place opens nodes seeded with the item until it is placed or nothing serves it.
func (k *packer) place(it *item) {
	if it.lot == nil || !it.served(k.from, k.to) {
		return
	}
	for len(it.pods) > 0 {
		sh, ok := k.best(it)
		if !ok {
			return
		}
		k.open(sh)
	}
}

// room is how many pods of the item, of which left are left, the bin can still take.
func (b *bin) room(it *item, left int) int {
	m := it.masks[b.index]
	if m == nil || !m.set.Has(b.chosen) || !it.d.class.Requests.Fits(b.free) {
		return 0
	}
	if cu := it.custom[b.index]; len(cu) > 0 && !compatible(b.custom, cu) {
		return 0
	}
	n := int(min(it.d.class.Requests.Count(b.free), int64(left)))
	if ports := it.d.class.HostPorts; len(ports) > 0 {
		if portsClash(b.ports, ports) {
			return 0
		}
		n = min(n, 1)
	}
	if len(it.d.hosts.rules) > 0 {
		n = min(n, it.d.hostRoom(b.id))
	}
	return n
}

func compatible(a, b capacity.Requirements) bool {
	return len(a) == 0 || len(b) == 0 || a.Overlaps(b) == nil
}

// put moves n pods of the item into the bin. Domains were counted when the item was split off; hosts are counted here.
func (s *solver) put(b *bin, it *item, n int) {
	for _, p := range it.pods[:n] {
		b.pods = append(b.pods, p)
		b.steps = append(b.steps, s.step)
		s.step++
	}
	it.pods = it.pods[n:]
	b.mask = b.mask.And(it.masks[b.index].set)
	b.take(it, n)
	b.used = b.used.AddTimes(it.d.class.Requests, int64(n))
}

// take counts n pods of the item in the bin's room, ports, labels and host rules.
func (b *bin) take(it *item, n int) {
	c := it.d.class
	b.free = b.free.AddTimes(c.Requests, -int64(n))
	if len(c.HostPorts) > 0 {
		b.ports = append(slices.Clone(b.ports), c.HostPorts...)
	}
	if cu := it.custom[b.index]; len(cu) > 0 {
		b.custom = b.custom.And(cu)
	}
	it.d.recordHost(b.id, n)
}

// shape is an offering of a pool filled with what suits it.
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

// best is the most efficient shape for the seed, or a smaller one that is nearly as good.
func (k *packer) best(seed *item) (shape, bool) {
	var kept []shape
	top := 0.0
	for i := k.from; i < k.to; i++ {
		m := seed.masks[i]
		if m == nil {
			continue
		}
		tried := k.candidates(i, m, seed)
		var good []shape
		for _, o := range tried {
			if sh := k.fill.try(i, o, seed); len(sh.counts) > 0 {
				good = append(good, sh)
				top = max(top, sh.efficiency())
			}
		}
		k.favour(m, good)
		kept = append(kept, good...)
	}
	if seed.d.clings() { // what does not go into this node goes nowhere
		most := 0
		for _, sh := range kept {
			most = max(most, sh.of(seed))
		}
		kept = slices.DeleteFunc(kept, func(sh shape) bool { return sh.of(seed) < most })
		top = 0
		for _, sh := range kept {
			top = max(top, sh.efficiency())
		}
	}
	kept = slices.DeleteFunc(kept, func(sh shape) bool { return sh.efficiency() < top*(1-evenness) })
	if len(kept) == 0 {
		return shape{}, false
	}
	return slices.MinFunc(kept, func(a, b shape) int {
		return cmp.Or(cmp.Compare(a.price, b.price), cmp.Compare(b.value, a.value), cmp.Compare(a.index, b.index), cmp.Compare(a.offering, b.offering))
	}), true
}

// of is how many pods of the item the shape holds.
func (sh shape) of(it *item) int {
	for _, c := range sh.counts {
		if c.it == it {
			return c.n
		}
	}
	return 0
}

// clings reports whether the pods of the demand have to share a host with each other.
func (d *demand) clings() bool {
	return slices.ContainsFunc(d.hosts.rules, func(r *rule) bool { return r.kind == affinity && r.self })
}

// favour remembers the offerings that did best for a mask.
func (k *packer) favour(m *mask, good []shape) {
	if _, ok := k.favours[m]; ok || len(good) == 0 {
		return
	}
	slices.SortStableFunc(good, func(a, b shape) int { return cmp.Compare(b.efficiency(), a.efficiency()) })
	var out []int
	for _, sh := range good[:min(len(good), maxFavours)] {
		out = append(out, sh.offering)
	}
	k.favours[m] = out
}

// candidates are the offerings worth trying for the seed: those that did best for its mask lately, as long as there is
// plenty left to pack, else a spread over sizes of those with the best bound on their efficiency. Why there is none is
// left on the item.
func (k *packer) candidates(index int, m *mask, seed *item) []int {
	p := k.s.pools[index]
	if k.opened%favourFor == 0 {
		clear(k.favours)
	}
	if fav := k.favours[m]; len(fav) > 0 && !seed.d.clings() {
		usable := slices.DeleteFunc(slices.Clone(fav), func(o int) bool {
			t := p.Catalog.TypeOf(o)
			return !p.left.allows(p.Catalog.Types[t].Capacity) || !seed.d.class.Requests.Fits(p.free[t]) || k.free[index-k.from][t]*4 > k.demand
		})
		if len(usable) == len(fav) {
			return usable
		}
		delete(k.favours, m)
	}
	type bounded struct {
		offering int
		bound    float64
	}
	// The best bound in each size class, where sizes are a fifth apart in price.
	sizes := map[int]bounded{}
	limited := false
	for _, o := range m.best {
		off := &p.Catalog.Offerings[o]
		t := p.Catalog.TypeOf(o)
		if !p.left.allows(off.Type.Capacity) {
			limited = true
			continue
		}
		if !seed.d.class.Requests.Fits(p.free[t]) {
			continue
		}
		b := bounded{o, min(k.free[index-k.from][t], k.demand) / off.Price}
		size := int(math.Floor(math.Log(off.Price) * 4))
		if have, ok := sizes[size]; !ok || b.bound > have.bound {
			sizes[size] = b
		}
	}
	if len(sizes) == 0 {
		if limited {
			seed.blocked(LimitReached, p.Name, p.left.String())
		}
		return nil
	}
	list := make([]bounded, 0, len(sizes))
	for _, b := range sizes {
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b bounded) int {
		return cmp.Or(cmp.Compare(b.bound, a.bound), cmp.Compare(a.offering, b.offering))
	})
	var out []int
	for _, b := range list[:min(len(list), maxCandidates)] {
		if b.bound >= list[0].bound/2 || seed.d.clings() {
			out = append(out, b.offering)
		}
	}
	return out
}

// blocked notes why the item cannot go to the pool; the reason that came nearest stays.
func (it *item) blocked(why Reason, pool, detail string) {
	if why.rank() > it.why.rank() {
		it.why, it.whyPool, it.whyDetail = why, pool, detail
	}
}

// open buys the shape as often as the counts allow.
func (k *packer) open(sh shape) {
	s := k.s
	p := s.pools[sh.index]
	t := p.Catalog.TypeOf(sh.offering)
	for {
		b := &bin{id: fmt.Sprintf("\x00new-%d", len(s.bins)), pool: p, index: sh.index, chosen: sh.offering, mask: p.open, free: p.free[t], used: p.overhead[t]}
		for _, c := range sh.counts {
			if n := min(c.n, b.room(c.it, len(c.it.pods))); n > 0 {
				s.put(b, c.it, n)
				c.it.lot.left -= n
				k.demand -= c.it.lot.value * float64(n)
			}
		}
		if len(b.pods) == 0 {
			return // what went in on trial may go nowhere else: affinity to the host the first of them is on
		}
		p.left.take(p.Catalog.Types[t].Capacity)
		s.bins = append(s.bins, b)
		k.opened++
		for _, c := range sh.counts {
			if len(c.it.pods) < c.n {
				return
			}
		}
		if !p.left.allows(p.Catalog.Types[t].Capacity) {
			return
		}
	}
}
