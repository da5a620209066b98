// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "slices"

// consider picks the pieces the shape can hold and values its resources so that the bound on what it can hold is least: the
// dual of the knapsack problem in all resources the pieces ask for. It returns the bound. Worths of the last time make a bound,
// too: where that promises no more than floor, no better is looked for.
func (f *filler) consider(all []*piece, floor float64) float64 {
	everything := f.collect(all)
	if everything <= floor {
		return everything
	}
	if len(f.sh.worths) > 0 {
		if top := f.recall(); top <= floor {
			return top
		}
	}
	return min(f.value(), everything)
}

// collect picks the pieces the shape can hold and returns what all of them are worth.
func (f *filler) collect(all []*piece) float64 {
	f.pieces = f.pieces[:0]
	everything := 0.0
	for _, p := range all {
		if p.left > 0 && f.sh.takes(p.set) && fits(p.size, f.room) {
			p.worth = p.worthOn(f.sh)
			f.pieces = append(f.pieces, p)
			everything += p.worth * float64(p.left)
		}
	}
	return everything
}

// recall takes the worths of the last time and returns the bound they make.
func (f *filler) recall() float64 {
	f.u, f.others = append(f.u[:0], f.sh.worths...), append(f.others[:0], f.sh.others...)
	return f.top()
}

// value finds the resources' worths anew, for the next time as well, and returns the bound they make.
func (f *filler) value() float64 {
	bound := f.appraise()
	f.sh.worths, f.sh.others = append(f.sh.worths[:0], f.u...), append(f.sh.others[:0], f.others...)
	return bound
}

// appraise finds the resources' worths and returns the bound they make. CPU and memory share the worth of the node first; then
// every other resource takes the part of it that lowers the bound most, and what is left is shared anew.
func (f *filler) appraise() float64 {
	f.u = append(f.u[:0], make([]float64, len(f.room))...)
	f.others = f.others[:0]
	bound := f.share(1)
	for d := 2; d < len(f.room); d++ {
		if f.room[d] <= 0 || !slices.ContainsFunc(f.pieces, func(p *piece) bool { return p.size[d] > 0 }) {
			continue
		}
		f.others = append(f.others, d)
		before := slices.Clone(f.u)
		part := func(t float64) {
			for e, v := range before {
				f.u[e] = v * (1 - t)
			}
			f.u[d] = t / f.room[d]
		}
		at := func(t float64) float64 { part(t); return f.top() }
		if at(leastPart) >= bound {
			part(0)
			f.others = f.others[:len(f.others)-1]
			continue
		}
		part(least(leastPart, 1-leastPart, at))
		left := 1.0
		for _, e := range f.others {
			left -= f.u[e] * f.room[e]
		}
		bound = f.share(left)
	}
	return bound
}

// leastPart is the smallest part of a node's worth that a resource can have.
const leastPart = 0.02

// share divides a part of the node's worth between CPU and memory and returns the bound.
func (f *filler) share(part float64) float64 {
	c, m := part/f.room[0], part/f.room[1]
	at := func(ratio float64) float64 {
		f.u[0], f.u[1] = (1-ratio)*c, ratio*m
		return f.top()
	}
	return at(least(leastPart, 1-leastPart, at))
}

// least finds about where a function that first falls and then rises is least.
func least(lo, hi float64, at func(float64) float64) float64 {
	for range 9 {
		a, b := lo+(hi-lo)*0.4, lo+(hi-lo)*0.6
		if at(a) < at(b) {
			hi = b
		} else {
			lo = a
		}
	}
	return (lo + hi) / 2
}

// top is what the node can hold at most by the resources' worths: all of it the densest piece.
func (f *filler) top() float64 {
	t := 0.0
	for _, p := range f.pieces {
		if w := f.weigh(f.u, p.size); p.worth > t*w {
			t = p.worth / w
		}
	}
	return t
}

// weigh is the worth of some resources.
func (f *filler) weigh(u, size []float64) float64 {
	w := u[0]*size[0] + u[1]*size[1] + 1e-12
	for _, d := range f.others {
		w += u[d] * size[d]
	}
	return w
}

// look sets the views: CPU alone, memory alone, and either with less of the other.
func (f *filler) look() {
	for v := range f.views {
		f.views[v] = append(f.views[v][:0], f.u...)
	}
	for d := range f.u {
		f.views[0][d], f.views[1][d] = 0, 0
	}
	f.views[0][0], f.views[1][1] = 1/f.sh.room[0], 1/f.sh.room[1]
	f.views[2][1] /= 4
	f.views[3][0] /= 4
}
