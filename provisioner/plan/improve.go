// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"
)

// Bounds on the improvement of a plan: how near to the bound is near enough, how many nodes are packed anew at a time, and
// how many attempts are made, in all and since the last that helped.
const (
	nearEnough  = 0.002
	maxTogether = 6
	maxAttempts = 240
	maxFailures = 60
	maxRebuilds = 24 // how often many nodes are packed anew at a time, and how many at most
	maxRebuilt  = 60
	maxInVain   = 6 // so many of them in a row that save nothing are the last
)

// improve packs groups of nodes anew, those that waste most together with others, and keeps what is cheaper. Nodes whose
// pods have to share a host are left alone.
func (k *packer) improve(first int) {
	s := k.s
	cost := 0.0
	for _, b := range s.bins[first:] {
		k.shrink(b)
		cost += k.costs(b, b.sh)
	}
	if k.left() > 0 {
		return // what a limit kept out comes first; there is nothing to gain before that
	}
	draw := lcg(1)
	failures := 0
	k.budget += k.fill.fills
	inVain := 0
	for range maxRebuilds {
		list := k.wasteful(s.bins[first:])
		if k.program == nil || cost <= k.bound*(1+nearEnough) || len(list) < 2 || inVain == maxInVain || k.fill.fills > k.budget {
			break
		}
		saved := k.rebuild(chooseMany(list, &draw))
		if cost -= saved; saved > 0 {
			inVain = 0
		} else {
			inVain++
		}
	}
	list := k.wasteful(s.bins[first:])
	for range maxAttempts {
		if cost <= k.bound*(1+nearEnough) || failures == maxFailures || len(list) < 2 || k.fill.fills > k.budget {
			return
		}
		if saved := k.repack(choose(list, &draw), &draw); saved > 0 {
			cost -= saved
			failures = 0
			list = k.wasteful(s.bins[first:])
		} else {
			failures++
		}
	}
}

// lcg is a generator of numbers that look random and are the same every time (Knuth's MMIX constants).
type lcg uint64

func (l *lcg) next(n int) int {
	*l = *l*6364136223846793005 + 1442695040888963407
	return int(uint64(*l>>33) % uint64(n))
}

// wasteful lists the bins that may be packed anew, those that waste most first.
func (k *packer) wasteful(bins []*bin) []*bin {
	waste := map[*bin]float64{}
	var list []*bin
	for _, b := range bins {
		if b.movable() {
			list = append(list, b)
			waste[b] = k.costs(b, b.sh) - b.worth()
		}
	}
	slices.SortFunc(list, func(a, b *bin) int { return cmp.Or(cmp.Compare(waste[b], waste[a]), a.host-b.host) })
	return list
}

// choose picks some bins of a list, those at its front more often: a position is the least of several draws.
func choose(list []*bin, draw *lcg) []*bin {
	n := min(2+draw.next(maxTogether-1), len(list))
	out := []*bin{list[min(draw.next(len(list)), draw.next(len(list)), draw.next(len(list)))]}
	for tries := 0; len(out) < n && tries < 4*maxTogether; tries++ {
		if b := list[min(draw.next(len(list)), draw.next(len(list)))]; !slices.Contains(out, b) {
			out = append(out, b)
		}
	}
	return out
}

// chooseMany picks a part of a list, those at its front more often.
func chooseMany(list []*bin, draw *lcg) []*bin {
	n := min(max(len(list)*(2+draw.next(5))/10, 2), maxRebuilt)
	out := map[*bin]bool{}
	for tries := 0; len(out) < n && tries < 4*n; tries++ {
		out[list[min(draw.next(len(list)), draw.next(len(list)))]] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(b *bin) bool { return !out[b] })
}

// movable reports whether the pods of the bin were packed by this packer and may go elsewhere.
func (b *bin) movable() bool {
	return len(b.takes) > 0 && b.reservation() == "" && !slices.ContainsFunc(b.takes, func(t take) bool { return t.it.row == nil || t.it.row.clings() })
}

// worth is what the bin's pods are worth.
func (b *bin) worth() float64 {
	v := 0.0
	for _, t := range b.takes {
		v += float64(t.n) * t.it.row.value
	}
	return v
}

// attempt is nodes that were taken back, and what they held and cost. left is how many pods had no place beside them.
type attempt struct {
	bins []*bin
	held [][]take
	cost float64
	left int
}

// takeBack takes nodes back: their pods want a place again.
func (k *packer) takeBack(bins []*bin) attempt {
	a := attempt{bins: slices.Clone(bins), left: k.left()}
	for _, b := range a.bins {
		a.cost += k.costs(b, b.sh)
		a.held = append(a.held, b.clear())
	}
	k.s.drop(a.bins...)
	return a
}

// putBack buys the nodes of an attempt again and puts their pods back.
func (k *packer) putBack(a attempt) {
	for i, b := range a.bins {
		k.s.charge(b)
		k.s.bins = append(k.s.bins, b)
		for _, t := range a.held[i] {
			b.put(t.it, t.n)
		}
	}
}

// price is what the nodes cost in US dollars an hour.
func (a attempt) price() float64 {
	sum := 0.0
	for _, b := range a.bins {
		sum += b.sh.price
	}
	return sum
}

// rows are the rows whose pods the nodes held.
func (a attempt) rows() []*row {
	var out []*row
	for _, held := range a.held {
		for _, t := range held {
			if !slices.Contains(out, t.it.row) {
				out = append(out, t.it.row)
			}
		}
	}
	return out
}

// repack packs the pods of some bins anew, with the worths of their rows shaken a little, and returns what that saves; if it
// saves nothing, all is as it was.
func (k *packer) repack(bins []*bin, draw *lcg) float64 {
	old := k.takeBack(bins)
	rows := old.rows()
	values := make([]float64, len(rows))
	for i, r := range rows {
		values[i] = r.value
		r.value *= 1 + float64(draw.next(200)-100)/1000
	}
	sorted := slices.Clone(rows)
	slices.SortFunc(sorted, func(a, b *row) int { return cmp.Or(cmp.Compare(k.bulk(b.size), k.bulk(a.size)), a.index-b.index) })
	from := len(k.s.bins)
	after, ok := k.packRows(sorted, old.cost)
	for i, r := range rows {
		r.value = values[i]
	}
	if ok && after < old.cost*(1-1e-6) {
		return old.cost - after
	}
	k.takeBack(k.s.bins[from:])
	k.putBack(old)
	return 0
}

// rebuild packs many bins anew at once, by the linear program, and returns what that saves; if it saves nothing, all is as it was.
func (k *packer) rebuild(bins []*bin) float64 {
	old := k.takeBack(bins)
	values := make([]float64, len(k.rows))
	for i, r := range k.rows {
		values[i] = r.value
	}
	from := len(k.s.bins)
	k.program.center = nil // what is left may fill nodes that could not be filled before
	promising := true
	if k.program.restart(k.program.known) {
		_, promising = k.dive(k.program, maxStages, laterRounds, old.cost)
	}
	if promising {
		k.byRow()
	}
	after := 0.0
	for _, b := range k.s.bins[from:] {
		k.shrink(b)
		after += k.costs(b, b.sh)
	}
	for i, r := range k.rows {
		r.value = values[i]
	}
	if promising && k.left() == 0 && after < old.cost*(1-1e-6) {
		return old.cost - after
	}
	k.takeBack(k.s.bins[from:])
	k.putBack(old)
	return 0
}

// packRows opens nodes for the rows until they are placed; false as soon as that costs as much as most.
func (k *packer) packRows(rows []*row, most float64) (cost float64, ok bool) {
	s := k.s
	for _, r := range rows {
		for r.left > 0 {
			from := len(s.bins)
			if !k.openFor(r, rows) {
				return cost, false
			}
			for _, b := range s.bins[from:] {
				cost += k.costs(b, b.sh)
			}
			if cost >= most*(1-1e-6) {
				return cost, false
			}
		}
	}
	return cost, true
}

// shrink exchanges a bin's shape for the cheapest that holds its pods.
func (k *packer) shrink(b *bin) {
	if b.reservation() != "" || slices.ContainsFunc(b.takes, func(t take) bool { return t.it.row == nil }) {
		return
	}
	used := k.vector(b.requests(), 0)
	now := k.costs(b, b.sh)
	for _, sh := range k.allShapes {
		if sh.cost >= now*(1-1e-9) {
			return
		}
		if k.costs(b, sh) >= now*(1-1e-9) {
			continue
		}
		if !fits(used, sh.room) || slices.ContainsFunc(b.takes, func(t take) bool { return !sh.takes(t.it.row.set) }) {
			continue
		}
		if sh.pool != b.pool && len(b.custom) > 0 {
			continue // its labels were chosen for the pool
		}
		if sh.pool != b.pool && sh.pool.minValues {
			continue
		}
		if !k.exchanges(b, sh) {
			continue
		}
		k.s.refund(b)
		b.become(sh)
		k.s.charge(b)
		return
	}
}
