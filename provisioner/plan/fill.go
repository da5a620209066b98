// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"math"
	"slices"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// trialHost is the host a trial counts its pods on.
const trialHost = -1

// filler looks for the filling of a node that is worth most: it takes as many as possible of each piece in order and then
// goes back on its last decisions, as long as its effort lasts and the bound on what can still come promises more.
type filler struct {
	sh     *shape
	pieces []*piece // densest first
	weight []float64
	dense  []float64
	room   []float64
	inv    []float64
	u      []float64    // what the resources are worth, in parts of the worth of the node
	others []int        // resources beside CPU and memory that have a worth
	views  [4][]float64 // other worths, each of which bounds what a filling can be worth
	rest   [4][]float64
	total  float64 // worth of the room at most
	counts []int
	active []int
	picks  []pick
	groups map[int]int
	ports  []capacity.HostPort
	custom int
	effort int
	fills  int // so far

	floor     float64 // what is worth no more is of no interest
	best      float64
	bestTakes []pieceTake
}

// moreEffort is how much farther a filling is searched for every further resource that binds it: there are that many more
// ways to waste one.
const moreEffort = 9

type pieceTake struct {
	p *piece
	n int
}

// fill returns the best filling found and its worth, if it can be worth more than floor. seed, if there is one, has a pod in
// it.
func (f *filler) fill(sh *shape, pieces []*piece, seed *piece, floor float64, effort int) ([]pieceTake, float64) {
	f.sh, f.effort, f.floor = sh, effort, floor
	f.room = append(f.room[:0], sh.room...)
	if f.consider(pieces, floor) <= floor {
		return nil, 0
	}
	f.fills++
	f.effort *= 1 + moreEffort*len(f.others)
	f.sort()
	f.counts = append(f.counts[:0], make([]int, len(f.pieces))...)
	f.ports, f.custom, f.best, f.bestTakes = f.ports[:0], 0, 0, f.bestTakes[:0]
	if len(f.groups) > 0 {
		clear(f.groups)
	}
	f.picks = f.picks[:0]
	value := 0.0
	if seed != nil {
		i := slices.Index(f.pieces, seed)
		if i < 0 || f.most(i) == 0 {
			return nil, 0
		}
		f.take(i, 1)
		value = seed.worth
		defer f.take(i, -1)
	}
	value = f.balance(value)
	f.keep(value)
	searched := false
	for n := len(f.picks); n > 0; n-- {
		p := f.picks[n-1]
		f.take(p.i, -p.n)
		value -= float64(p.n) * f.pieces[p.i].worth
		if f.roomy() && !searched {
			f.visit(0, value)
			searched = true
		}
	}
	return slices.Clone(f.bestTakes), f.best
}

// roomy reports whether enough room is free for a search to be worth its while.
func (f *filler) roomy() bool {
	return f.room[0] > reopened*f.sh.room[0] && f.room[1] > reopened*f.sh.room[1]
}

// reopened is the part of a node that is searched again for a better filling.
const reopened = 0.8

// sort puts the pieces in order of their worth per resource.
func (f *filler) sort() {
	for _, p := range f.pieces {
		p.weight = f.weigh(f.u, p.size)
		p.density = p.worth / p.weight
	}
	slices.SortFunc(f.pieces, func(x, y *piece) int {
		return cmp.Or(cmp.Compare(y.density, x.density), cmp.Compare(y.weight, x.weight), x.index-y.index)
	})
	f.weight, f.dense = f.weight[:0], f.dense[:0]
	for _, p := range f.pieces {
		f.weight, f.dense = append(f.weight, p.weight), append(f.dense, p.density)
	}
	f.total = 1
	f.look()
	for v, u := range f.views {
		f.rest[v] = append(f.rest[v][:0], make([]float64, len(f.pieces))...)
		most := 0.0
		for i := len(f.pieces) - 1; i >= 0; i-- {
			p := f.pieces[i]
			most = max(most, p.worth/f.weigh(u, p.size))
			f.rest[v][i] = most
		}
	}
}

type pick struct{ i, n int }

// balance takes, again and again, the piece that is worth most for the share it takes of the room left, which keeps the
// resources in balance. It returns the worth.
func (f *filler) balance(value float64) float64 {
	f.active = f.active[:0]
	for i := range f.pieces {
		f.active = append(f.active, i)
	}
	f.inv = append(f.inv[:0], f.room...)
	inv := f.inv
	for {
		for d, v := range f.room {
			inv[d] = 1 / max(v, 1e-9)
		}
		best, top := -1, 0.0
		kept := f.active[:0]
		for _, i := range f.active {
			p := f.pieces[i]
			share, fits := 0.0, true
			for d, v := range p.size {
				if v > f.room[d] {
					fits = false
					break
				}
				share += v * inv[d]
			}
			if !fits {
				continue
			}
			kept = append(kept, i)
			if e := p.worth / share; e > top {
				best, top = i, e
			}
		}
		f.active = kept
		if best < 0 {
			return value
		}
		n := f.most(best)
		if n == 0 {
			f.active = slices.DeleteFunc(f.active, func(i int) bool { return i == best })
			continue
		}
		n = max(1, min(n, n/8))
		f.take(best, n)
		f.picks = append(f.picks, pick{best, n})
		value += float64(n) * f.pieces[best].worth
	}
}

func (f *filler) visit(from int, value float64) {
	if value > f.best*(1+1e-9) {
		f.keep(value)
	}
	for i := from; i < len(f.pieces); i++ {
		if value+f.above(i) <= max(f.best, f.floor)*(1+1e-6) {
			return
		}
		n := f.most(i)
		if n == 0 {
			continue
		}
		v := f.pieces[i].worth
		for ; n > 0; n-- {
			f.take(i, n)
			f.visit(i+1, value+float64(n)*v)
			f.take(i, -n)
			if f.effort--; f.effort <= 0 {
				return
			}
		}
	}
}

// above bounds what the pieces from i on can add.
func (f *filler) above(i int) float64 {
	least := f.dense[i] * f.total
	for v, u := range f.views {
		least = min(least, f.rest[v][i]*f.weigh(u, f.room))
	}
	return least
}

// keep remembers the filling as the best so far.
func (f *filler) keep(value float64) {
	f.best = value
	f.bestTakes = f.bestTakes[:0]
	for i, n := range f.counts {
		if n > 0 {
			f.bestTakes = append(f.bestTakes, pieceTake{f.pieces[i], n})
		}
	}
}

// most is how many more pods of piece i there is room for.
func (f *filler) most(i int) int {
	p := f.pieces[i]
	n := p.left - f.counts[i]
	for d, v := range p.size {
		if v > f.room[d] {
			return 0
		}
		if v > 0 && v*float64(n) > f.room[d] {
			n = int(math.Floor(f.room[d] / v))
		}
	}
	if n <= 0 || !f.sh.takes(p.set) || (p.custom != 0 && f.custom != 0 && p.custom != f.custom) {
		return 0
	}
	for _, g := range p.groups {
		n = min(n, g.most-f.groups[g.id])
	}
	if len(p.ports) > 0 {
		if portsClash(f.ports, p.ports) {
			return 0
		}
		n = min(n, 1)
	}
	if p.hosts != nil {
		n = min(n, p.hosts.room(trialHost))
	}
	return max(n, 0)
}

// take puts n pods of piece i in, or takes them out again for negative n, in reverse order.
func (f *filler) take(i, n int) {
	p := f.pieces[i]
	f.counts[i] += n
	f.total -= float64(n) * f.weight[i]
	for d, v := range p.size {
		f.room[d] -= float64(n) * v
	}
	for _, g := range p.groups {
		if f.groups == nil {
			f.groups = map[int]int{}
		}
		f.groups[g.id] += n
	}
	if len(p.ports) > 0 {
		if n > 0 {
			f.ports = append(f.ports, p.ports...)
		} else {
			f.ports = f.ports[:len(f.ports)-len(p.ports)]
		}
	}
	if p.custom != 0 {
		f.custom = p.custom
		if n < 0 {
			f.custom = f.customNow()
		}
	}
	if p.hosts != nil {
		p.hosts.record(trialHost, n)
	}
}

// customNow is the custom number of what is in the node.
func (f *filler) customNow() int {
	for i, n := range f.counts {
		if n > 0 && f.pieces[i].custom != 0 {
			return f.pieces[i].custom
		}
	}
	return 0
}
