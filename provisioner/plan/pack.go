// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// packer packs the items of one tier into nodes of one group of pools of equal weight.
type packer struct {
	s         *solver
	from, to  int // the pools
	dims      []corev1.ResourceName
	drivers   []string  // CSI drivers whose volumes anything asks for
	sets      [][]*mask // combinations of masks, one mask a pool
	rows      []*row
	shapes    []*shape
	allShapes []*shape  // those too many to be tried included
	total     []float64 // what all rows ask for
	ceiling   float64   // what the cheapest shape costs that holds all rows: none that costs more is of use
	fill      filler
	wishes    []*wish // by number; none is 0
	wishIDs   map[string]int
	favours   map[int][]*shape // by set: the shapes that were best lately
	opened    int
	program   *program // solved for all rows, if they are few enough; nil else
	budget    int      // fillings that may be tried: work is bounded by counts, never by time
	bound     float64  // what the linear program says all of it costs at least, about
	tight     bool     // a limit has kept a node from being bought
	strain    float64  // what all that a pool's limits leave counts as, in US dollars an hour; see underLimits
}

// pack opens new nodes until every item is placed or stuck: for each group of pools of equal weight, heaviest first, what
// earlier groups left over.
func (s *solver) pack(items []*item) {
	for _, it := range items {
		s.fillBins(it)
	}
	for from := 0; from < len(s.pools); {
		to := from + 1
		for to < len(s.pools) && s.pools[to].Weight == s.pools[from].Weight {
			to++
		}
		k := &packer{s: s, from: from, to: to, favours: map[int][]*shape{}, wishIDs: map[string]int{}}
		k.pack(items)
		from = to
	}
}

// fillBins puts pods of the item into nodes already opened. Those that need company go where it is.
func (s *solver) fillBins(it *item) {
	near := it.d.hosts.near()
	for _, b := range s.bins {
		if it.left == 0 {
			return
		}
		if near != nil && near.hosts[b.host] == 0 {
			continue
		}
		if n := b.room(it, it.left); n > 0 {
			b.put(it, n)
		}
	}
}

func (k *packer) pack(items []*item) {
	k.makeRows(items)
	if len(k.rows) == 0 {
		return
	}
	k.total = make([]float64, len(k.dims)+len(k.drivers))
	for _, r := range k.rows {
		for d, v := range r.size {
			k.total[d] += v * float64(r.left)
		}
	}
	k.makeShapes()
	k.priceWishes()
	first := len(k.s.bins)
	k.buyAll()
	k.underLimits(first)
	k.grow()
	k.improve(first)
	for _, it := range items {
		it.row = nil
	}
}

// buyAll opens nodes for all rows, as far as limits allow.
func (k *packer) buyAll() {
	k.byReservation()
	k.byCompany()
	if !k.byCount() && (len(k.rows) > 1 || k.rows[0].left > 1) {
		k.byProgram()
	}
	k.byRow()
}

// maxStages bounds how often the linear program is solved anew for what the last solution, rounded down, left over, laterRounds
// the rounds of columns after the first time.
const (
	maxStages   = 64
	laterRounds = 12
)

// byProgram buys what the linear program says, rounded down to whole nodes, and goes on with the rest.
func (k *packer) byProgram() {
	p := k.newProgram()
	if p == nil {
		return
	}
	stages, rounds := 2+p.pods()/2500, 12+p.pods()/500
	k.budget = k.fill.fills + baseBudget + podBudget*p.pods()
	if p.lots[0].exact {
		stages, rounds = maxStages, maxColumnRounds
		k.program = p
		k.budget += min(exactBudget, exactEach*p.pods())
	}
	k.bound, _ = k.dive(p, stages, rounds, math.Inf(1))
}

// dive buys the whole nodes of the program's solution and solves it anew for what is left, until hardly anything is. It returns
// the value of the first solution. It gives up, and is false, as soon as it is clear that all of it will cost as much as most.
func (k *packer) dive(p *program, stages, rounds int, most float64) (bound float64, ok bool) {
	spent := 0.0
	for stage := range stages {
		p.solve(rounds)
		if spent+p.m.value() >= most*(1-1e-6) {
			return bound, false
		}
		p.appraise()
		if stage == 0 {
			bound, rounds = p.m.value(), min(rounds, laterRounds)
			if p.known == nil {
				p.known, p.effort = p.m.columns, min(p.effort, firstEffort)
			}
		}
		from := len(k.s.bins)
		if !k.buy(p) || !p.restart(p.m.columns) {
			break
		}
		if !math.IsInf(most, 1) {
			for _, b := range k.s.bins[from:] {
				k.shrink(b)
				spent += k.costs(b, b.sh)
			}
		}
	}
	return bound, true
}

// The fillings a plan may try: some, and more for each pod.
const (
	baseBudget  = 2000
	podBudget   = 6
	exactBudget = 8000 // at most so many more, and for each pod, where every size is a row of the program: it is worth solving to the end
	exactEach   = 16
)

// buy opens the whole nodes of a solution; if there is none, one node of the column used most. It is false when that gets
// nowhere.
func (k *packer) buy(p *program) bool {
	sol := p.solution()
	bought := 0
	for _, u := range sol {
		bought += k.copies(p, u.column, int(u.level+1e-6))
	}
	if bought == 0 && len(sol) > 0 && sol[0].level > leastUse {
		bought = k.copies(p, sol[0].column, 1)
	}
	return bought > 0
}

// leastUse is how much of a node a solution has to use for it to be bought although that is less than all of it.
const leastUse = 0.3

// copies opens up to n nodes filled as the column says, until one can't be.
func (k *packer) copies(p *program, c *column, n int) int {
	for i := range n {
		if !k.affords(c.sh) {
			k.tight = true
			return i
		}
		b := k.open(c.sh)
		worth := 0.0
		for x, l := range c.lots {
			worth += k.give(b, p.lots[l], c.count[x])
		}
		worth += k.topUp(b)
		if worth < c.sh.cost*worthwhile {
			b.clear()
			k.s.drop(b)
			return i
		}
	}
	return n
}

// worthwhile is the worth per dollar below which a node that could not be filled as planned is not bought.
const worthwhile = 0.9

// give moves up to n pods of the lot into the bin and returns their worth.
func (k *packer) give(b *bin, l *lot, n int) float64 {
	worth := 0.0
	for _, r := range l.rows {
		if n == 0 {
			break
		}
		got := r.give(b, n)
		n -= got
		worth += float64(got) * r.worthOn(b.sh)
	}
	return worth
}

// give moves up to n pods of the row into the bin, from one item after the other, so that no workload is on one node
// only if another one of the same size could be there.
func (r *row) give(b *bin, n int) int {
	done := 0
	for range r.items {
		if done == n || !r.goesOn(b) {
			return done
		}
		it := r.items[r.next]
		r.next = (r.next + 1) % len(r.items)
		want := n - done
		if len(r.items) > 1 {
			want = max(want*it.left/max(r.left, 1), 1)
		}
		if it.left == 0 {
			continue
		}
		if got := b.room(it, min(want, it.left)); got > 0 {
			b.put(it, got)
			done += got
		}
	}
	for _, it := range r.items {
		if done == n || !r.goesOn(b) {
			return done
		}
		if it.left > 0 {
			if got := b.room(it, min(n-done, it.left)); got > 0 {
				b.put(it, got)
				done += got
			}
		}
	}
	return done
}

// goesOn reports whether one more pod of the row may go on the bin, as far as the row as a whole tells: size and rules about
// hosts are those of all its items.
func (r *row) goesOn(b *bin) bool {
	return r.left > 0 && r.request.Fits(b.free) && (r.hosts == nil || r.hosts.room(b.host) > 0)
}

// topUp fills what room is left with those that are worth anything there, their wishes counted.
func (k *packer) topUp(b *bin) float64 {
	worth := 0.0
	for _, r := range k.rows {
		if !r.goesOn(b) || (r.wish != 0 && r.value <= r.wishCost(b.sh)) {
			continue
		}
		worth += float64(r.give(b, r.left)) * r.worthOn(b.sh)
	}
	return worth
}

// byRow opens nodes for what is left, one after the other: the first row that has pods seeds it, and of all shapes the one
// whose filling is worth most per dollar is bought, as often as the counts allow.
func (k *packer) byRow() {
	k.worthless()
	bySize := slices.SortedStableFunc(slices.Values(k.rows), func(a, b *row) int { return cmp.Compare(k.bulk(b.size), k.bulk(a.size)) })
	for _, r := range bySize {
		for r.left > 0 {
			if !k.openFor(r, k.rows) {
				break
			}
		}
	}
	for _, r := range bySize {
		if r.left > 0 && (r.clings() || k.tight) {
			k.join(r)
		}
	}
}

// worthless gives rows that the linear program did not appraise the worth of their size.
func (k *packer) worthless() {
	scale := 0.0
	for _, r := range k.rows {
		if r.value > 0 {
			scale = max(scale, r.value/k.bulk(r.size))
		}
	}
	for _, r := range k.rows {
		if r.value <= 0 {
			r.value = max(scale, 1e-9) * k.bulk(r.size)
		}
	}
}

// openFor opens the best node for a pod of the row; false if there is none, with the reason on its items.
func (k *packer) openFor(seed *row, rows []*row) bool {
	pieces := k.piecesFor(seed, rows)
	sh, takes := k.bestShape(seed, pieces)
	if sh == nil {
		return false
	}
	for n := 0; k.affords(sh); n++ {
		for _, t := range takes {
			if n > 0 && t.p.left < t.n {
				return true
			}
		}
		b := k.open(sh)
		seed.give(b, 1)
		for _, t := range takes {
			r := k.rows[t.p.index]
			want := t.n
			if r == seed {
				want--
			}
			r.give(b, want)
		}
		if len(b.takes) == 0 {
			k.s.drop(b)
			return n > 0
		}
	}
	return true
}

// bulk measures a size in one number: its cores, memory at 4 GiB a core, and whatever else it asks for by its share.
func (k *packer) bulk(size []float64) float64 {
	n := size[0]/1000 + size[1]/(4<<30) + k.special(size)
	for d := 2; d < len(k.dims); d++ {
		switch k.dims[d] {
		case corev1.ResourcePods:
			n += size[d] * 0.01
		case corev1.ResourceEphemeralStorage:
			n += size[d] / (40 << 30)
		}
	}
	return max(n, 1e-6)
}

// special measures what a size has of extended resources: devices, at 32 cores each.
func (k *packer) special(size []float64) float64 {
	n := 0.0
	for d := 2; d < len(k.dims); d++ {
		if name := k.dims[d]; name != corev1.ResourcePods && name != corev1.ResourceEphemeralStorage {
			n += size[d] * 32
		}
	}
	return n
}

// DefaultEvenness is how much dearer, in parts of its price, a node counts that could hold everything there is to pack. One
// that could hold a tenth of it counts a tenth of that dearer, and so on.
const DefaultEvenness = 0.01

// costOf is what the choice of a shape goes by.
func (k *packer) costOf(sh *shape) float64 {
	evenness := DefaultEvenness
	if e := sh.pool.Evenness; e != nil {
		evenness = *e
	}
	share := 1.0
	for d := range 2 {
		if k.total[d] > 0 {
			share = min(share, sh.room[d]/k.total[d])
		}
	}
	cost := max(sh.price, minPrice) * (1 + evenness*share)
	if k.strain > 0 {
		cost += k.strain * sh.pool.left.share(sh.pool.Catalog.Types[sh.kind].Capacity)
	}
	return cost
}

// minPrice stands in for the price of what costs nothing, so that of two such nodes the fuller one is better.
const minPrice = 1e-6

// blocked notes why the item cannot go to the pool; the reason that came nearest stays.
func (it *item) blocked(why Reason, pool, detail string) {
	if why.rank() > it.why.rank() {
		it.why, it.whyPool, it.whyDetail = why, pool, detail
	}
}
