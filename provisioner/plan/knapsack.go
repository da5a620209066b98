// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math"
	"slices"
	"sort"
)

// knapsack looks for the filling of one shape that is worth most: branch and bound over how many pods of each piece it holds,
// pieces worth most first. What can still come is bounded by prices of the resources, the duals of the knapsack whose pods may be
// divided. Unlike filler it looks at pieces as they stand in the linear program: rules about other pods on the host are not
// seen, only groups and labels.
type knapsack struct {
	sh     *shape
	dims   []int // resources the pieces ask for
	pieces []*piece
	room   []float64
	worth  []float64 // by depth, as are all that follow
	size   []float64 // one after the other, len(dims) each
	most   []float64
	bounds []bounding
	rooms  []float64 // len(dims) each
	counts []int
	relax  relaxation

	groups map[int]int // how many pods of each group are in
	custom int
	found  []int
	best   float64
	left   int     // nodes of the search that may still be visited
	open   float64 // the largest bound of a branch that was not visited for lack of effort
}

// bounding is prices of the resources, in worth per unit, and what the pieces from each depth on can add to them: u·room +
// Σ most·max(0, worth - u·size) is at least what any filling of the room is worth.
type bounding struct {
	u, rest []float64
}

// knapsackSlack is how much, in parts, a branch must promise above the best known to be visited.
const knapsackSlack = 1e-4

// glance bounds what a node can hold in worth with the prices of the last time, which may be anything.
func (k *knapsack) glance(all []*piece) float64 {
	if len(k.bounds) == 0 {
		return math.Inf(1)
	}
	u := k.bounds[0].u
	sum := 0.0
	for i, d := range k.dims {
		sum += u[i] * k.sh.room[d]
	}
	for _, p := range all {
		if p.left == 0 || !k.sh.takes(p.set) {
			continue
		}
		v := p.worthOn(k.sh)
		for i, d := range k.dims {
			v -= u[i] * p.size[d]
		}
		if v > 0 {
			sum += v * float64(k.fit(p))
		}
	}
	return sum
}

// fit is how many pods of a piece the empty node holds.
func (k *knapsack) fit(p *piece) int {
	n := p.left
	for d, v := range p.size {
		if v > 0 {
			n = min(n, int(k.sh.room[d]/v))
		}
	}
	for _, g := range p.groups {
		n = min(n, g.most)
	}
	return n
}

// start prepares a search among pieces, those of most value first, and returns a bound on what a filling is worth.
func (k *knapsack) start(all []*piece) float64 {
	k.pieces, k.worth, k.size, k.most = k.pieces[:0], k.worth[:0], k.size[:0], k.most[:0]
	k.dims, k.room, k.bounds = k.dims[:0], k.room[:0], k.bounds[:0]
	for d, v := range k.sh.room {
		if v > 0 && slices.ContainsFunc(all, func(p *piece) bool { return p.size[d] > 0 }) {
			k.dims, k.room = append(k.dims, d), append(k.room, v)
		}
	}
	for _, p := range all {
		if p.left == 0 || !k.sh.takes(p.set) {
			continue
		}
		v, n := p.worthOn(k.sh), k.fit(p)
		if v <= 0 || n == 0 {
			continue
		}
		k.pieces, k.worth, k.most = append(k.pieces, p), append(k.worth, v), append(k.most, float64(n))
		for _, d := range k.dims {
			k.size = append(k.size, p.size[d])
		}
	}
	k.addBound(0)
	return k.above(0, k.room)
}

// addBound adds the prices that bound the pieces from a depth on best, for an empty node.
func (k *knapsack) addBound(depth int) {
	n, w := len(k.pieces), len(k.dims)
	b := bounding{u: k.relax.prices(k.worth[depth:], k.size[depth*w:], k.room, k.most[depth:]), rest: make([]float64, n+1)}
	for i := n - 1; i >= 0; i-- {
		v := k.worth[i] - dot(b.u, k.size[i*w:])
		b.rest[i] = b.rest[i+1] + k.most[i]*max(v, 0)
	}
	k.bounds = append(k.bounds, b)
}

// dot multiplies a vector with the beginning of another.
func dot(a, b []float64) float64 {
	sum := 0.0
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

// above bounds what the pieces from a depth on can be worth in the room.
func (k *knapsack) above(depth int, room []float64) float64 {
	least := math.Inf(1)
	for i := range k.bounds {
		least = min(least, dot(k.bounds[i].u, room)+k.bounds[i].rest[depth])
	}
	return least
}

// moreBounds is how many bounds a search uses beside the first.
const moreBounds = 3

// run looks for a filling worth more than floor, visiting as many nodes of the search at most as it has effort. It returns the
// filling, nil if there is none, what it is worth, and a bound on what any is worth, which is at least floor.
func (k *knapsack) run(floor float64, effort int) (takes []pieceTake, value, top float64) {
	n, w := len(k.pieces), len(k.dims)
	for i := 1; i <= moreBounds && n > 2*moreBounds && len(k.bounds) <= moreBounds; i++ {
		k.addBound(i * n / (moreBounds + 1))
	}
	k.rooms = append(k.rooms[:0], make([]float64, (n+1)*w)...)
	copy(k.rooms, k.room)
	k.counts = append(k.counts[:0], make([]int, n)...)
	k.found, k.custom, k.best, k.left, k.open = k.found[:0], 0, floor, effort, 0
	if k.groups == nil {
		k.groups = map[int]int{}
	}
	clear(k.groups)
	k.visit(0, 0)
	for i, c := range k.found {
		if c > 0 {
			takes = append(takes, pieceTake{k.pieces[i], c})
		}
	}
	return takes, k.best, max(k.best*(1+knapsackSlack), k.open)
}

// visit decides how many pods of the piece at a depth the node holds. What a number of them can lead to is a concave function of
// the number, so it goes from the most promising one outwards and stops where the promise is too little.
func (k *knapsack) visit(depth int, value float64) {
	if value > k.best {
		k.best, k.found = value, append(k.found[:0], k.counts...)
	}
	if depth == len(k.pieces) {
		return
	}
	k.left--
	high, most := k.peak(depth)
	low := high - 1
	lowTop, highTop := k.promise(depth, low), k.promise(depth, high)
	for low >= 0 || high <= most {
		n, top := high, highTop
		if high > most || (low >= 0 && lowTop > highTop) {
			n, top = low, lowTop
		}
		if top += value; top <= k.best*(1+knapsackSlack) {
			return
		}
		if k.left <= 0 {
			k.open = max(k.open, top)
			return // the others promise less
		}
		custom := k.custom
		k.put(depth, n)
		k.take(depth, n)
		k.visit(depth+1, value+float64(n)*k.worth[depth])
		k.put(depth, -n)
		k.custom = custom
		if n == low {
			low--
			lowTop = k.promise(depth, low)
		} else {
			high++
			highTop = k.promise(depth, high)
		}
	}
}

// put notes n pods more of the piece at a depth, beside the room they take.
func (k *knapsack) put(depth, n int) {
	k.counts[depth] += n
	p := k.pieces[depth]
	for _, g := range p.groups {
		k.groups[g.id] += n
	}
	if n > 0 && p.custom != 0 {
		k.custom = p.custom
	}
}

// take sets the room of the next depth to what n pods leave.
func (k *knapsack) take(depth, n int) {
	w := len(k.dims)
	room, next, size := k.rooms[depth*w:(depth+1)*w], k.rooms[(depth+1)*w:(depth+2)*w], k.size[depth*w:]
	for d, v := range room {
		next[d] = v - float64(n)*size[d]
	}
}

// promise bounds what n pods of the piece at a depth and the pieces after it are worth.
func (k *knapsack) promise(depth, n int) float64 {
	w := len(k.dims)
	k.take(depth, n)
	return float64(n)*k.worth[depth] + k.above(depth+1, k.rooms[(depth+1)*w:(depth+2)*w])
}

// peak is the number of pods that promises most, and the largest number possible.
func (k *knapsack) peak(depth int) (best, most int) {
	p, w := k.pieces[depth], len(k.dims)
	most = int(k.most[depth])
	for d, v := range k.size[depth*w : (depth+1)*w] {
		if r := k.rooms[depth*w+d]; v > 0 && v*float64(most) > r {
			most = int(r / v)
		}
	}
	for _, g := range p.groups {
		most = min(most, g.most-k.groups[g.id])
	}
	if most <= 0 || (p.custom != 0 && k.custom != 0 && p.custom != k.custom) {
		return 0, 0
	}
	best = sort.Search(most, func(n int) bool { return k.promise(depth, n+1) <= k.promise(depth, n) })
	return best, most
}
