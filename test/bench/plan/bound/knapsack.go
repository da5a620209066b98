// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bound

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// knapsack is the pricing problem of one shape: the configuration worth most. Groups of items of which a node may hold
// only so many are resources like the others.
type knapsack struct {
	shape int
	price float64
	items []int       // local → item of the problem
	size  [][]float64 // local → what a pod takes of each resource; whole numbers
	room  []float64
	most  []float64 // local → pods of it that fit at all
	u     []float64 // prices of the resources that were best the last time; nil before the first

	effort int     // how many nodes its search may visit
	excess float64 // how far above its price the last search left its bound, in parts of it, for lack of effort; 0 if it ended
}

func newKnapsack(p *Problem, shape int) *knapsack {
	s := &p.Shapes[shape]
	k := &knapsack{shape: shape, price: s.Price, effort: firstEffort}
	for _, r := range s.Room {
		k.room = append(k.room, float64(max(r, 0)))
	}
	for _, c := range p.Caps {
		k.room = append(k.room, float64(c))
	}
	for i := range p.Items {
		it := &p.Items[i]
		n := p.fit(s, it)
		if n == 0 {
			continue
		}
		size := make([]float64, len(k.room))
		for d, q := range it.Size {
			size[d] = float64(q)
		}
		for _, g := range it.Groups {
			size[len(it.Size)+g] = 1
		}
		k.items, k.size, k.most = append(k.items, i), append(k.size, size), append(k.most, float64(n))
	}
	k.drop()
	return k
}

// drop leaves out resources none of the items takes.
func (k *knapsack) drop() {
	var used []int
	for d := range k.room {
		if slices.ContainsFunc(k.size, func(s []float64) bool { return s[d] > 0 }) {
			used = append(used, d)
		}
	}
	pick := func(v []float64) []float64 {
		out := make([]float64, len(used))
		for i, d := range used {
			out[i] = v[d]
		}
		return out
	}
	k.room = pick(k.room)
	for i := range k.size {
		k.size[i] = pick(k.size[i])
	}
}

// bounding is a vector of resource prices with what the items from each depth of the search on can add to it:
// u·room + Σ most·max(0, y - u·size) is at least what any filling of the room is worth.
type bounding struct {
	u    []float64
	rest []float64 // by depth
}

// search is one branch and bound over a knapsack: items in order of worth.
type search struct {
	k      *knapsack
	y      []float64 // by depth, like size and most
	size   [][]float64
	most   []float64
	local  []int // depth → local item
	bounds []bounding

	rooms [][]float64 // by depth
	now   []float64   // by depth: pods taken
	best  float64
	found []float64
	left  int     // nodes that may still be visited
	open  float64 // largest bound of a branch that was not visited for lack of effort
}

// slack is how much, relatively, a branch must promise above the best known to be visited. The bound loses no more than this.
const slack = 1e-4

// glance bounds what a node can hold in worth with the resource prices of the last time. They are not the best now, but
// hardly worse, and any prices bound it.
func (k *knapsack) glance(y []float64) float64 {
	if k.u == nil {
		return math.Inf(1)
	}
	sum := dot(k.u, k.room)
	for l, i := range k.items {
		if v := y[i] - dot(k.u, k.size[l]); v > 0 {
			sum += k.most[l] * v
		}
	}
	return sum
}

// start prepares a search under the given worths of the problem's items.
func (k *knapsack) start(y []float64) *search {
	s := &search{k: k}
	for l, i := range k.items {
		if y[i] > 0 {
			s.local = append(s.local, l)
		}
	}
	worth := func(l int) float64 { return y[k.items[l]] }
	slices.SortFunc(s.local, func(a, b int) int {
		return cmp.Or(cmp.Compare(worth(b), worth(a)), cmp.Compare(a, b))
	})
	for _, l := range s.local {
		s.y, s.size, s.most = append(s.y, worth(l)), append(s.size, k.size[l]), append(s.most, k.most[l])
	}
	s.addBound(0, k.room)
	k.u = s.bounds[0].u
	return s
}

// addBound adds the prices that bound the items from a depth on best, for a node with so much room.
func (s *search) addBound(depth int, room []float64) {
	u, _ := divisible(s.y[depth:], s.size[depth:], room, s.most[depth:])
	b := bounding{u: u, rest: make([]float64, len(s.y)+1)}
	for i := len(s.y) - 1; i >= 0; i-- {
		b.rest[i] = b.rest[i+1] + s.most[i]*max(0, s.y[i]-dot(u, s.size[i]))
	}
	s.bounds = append(s.bounds, b)
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

// above bounds what the items from a depth on can be worth in the room.
func (s *search) above(depth int, room []float64) float64 {
	least := math.Inf(1)
	for i := range s.bounds {
		b := &s.bounds[i]
		least = min(least, dot(b.u, room)+b.rest[depth])
	}
	return least
}

// root bounds the whole knapsack.
func (s *search) root() float64 { return s.above(0, s.k.room) }

// addBounds adds bounds for what is left deeper in the search: for items from some depths on, and, if the search is a long one,
// for nodes that have much less left of one of the resources.
func (s *search) addBounds(effort int) {
	n := len(s.y)
	if n <= 2*moreBounds {
		return
	}
	if len(s.bounds) == 1 {
		for i := 1; i <= moreBounds; i++ {
			s.addBound(i*n/(moreBounds+1), s.k.room)
		}
	}
	if effort < longSearch || len(s.bounds) > 1+moreBounds {
		return
	}
	for i := range moreBounds + 1 {
		for d := range min(len(s.k.room), 2) {
			room := slices.Clone(s.k.room)
			room[d] *= scarce
			s.addBound(i*n/(moreBounds+1), room)
		}
	}
}

// moreBounds is how many depths have a bounding vector beside the root's, and longSearch the effort from which on there are
// more of them, for nodes that have a part of one resource left.
const (
	moreBounds = 3
	longSearch = 10_000
	scarce     = 0.3
)

// run looks for a configuration worth more than floor. It returns it, if there is one, and an upper bound on the worth of
// any configuration, which is at least floor.
func (s *search) run(floor float64, effort int) (column, float64, bool) {
	n := len(s.y)
	s.addBounds(effort)
	s.rooms = make([][]float64, n+1)
	for d := range s.rooms {
		s.rooms[d] = make([]float64, len(s.k.room))
	}
	copy(s.rooms[0], s.k.room)
	s.now, s.found, s.best, s.left, s.open = make([]float64, n), nil, floor, effort, 0
	s.visit(0, 0)
	top := max(s.best*(1+slack), s.open)
	if s.found == nil {
		return column{}, top, false
	}
	return s.column(s.found), top, true
}

// column is the configuration with so many pods at each depth.
func (s *search) column(counts []float64) column {
	c := column{shape: s.k.shape, price: s.k.price}
	for d, x := range counts {
		if x > 0 {
			c.items, c.count = append(c.items, s.k.items[s.local[d]]), append(c.count, x)
		}
	}
	return c
}

// fractional is the best configuration if pods could be divided.
func (s *search) fractional() column {
	_, x := divisible(s.y, s.size, s.k.room, s.most)
	return s.column(x)
}

// visit decides how many pods of the item at a depth the node holds. What a number of them can lead to is a concave
// function of the number, so it goes from the most promising one outwards and stops where the promise is too little.
func (s *search) visit(depth int, value float64) {
	if value > s.best {
		s.best, s.found = value, slices.Clone(s.now)
	}
	if depth == len(s.y) {
		return
	}
	s.left--
	high, most := s.peak(depth)
	low := high - 1
	lowTop, highTop := s.promise(depth, low), s.promise(depth, high)
	for low >= 0 || high <= most {
		n, top := high, highTop
		if high > most || (low >= 0 && lowTop > highTop) {
			n, top = low, lowTop
		}
		if top += value; top <= s.best*(1+slack) {
			break
		}
		if s.left <= 0 {
			s.open = max(s.open, top)
			break // the others promise less
		}
		s.now[depth] = float64(n)
		s.take(depth, n)
		s.visit(depth+1, value+float64(n)*s.y[depth])
		if n == low {
			low--
			lowTop = s.promise(depth, low)
		} else {
			high++
			highTop = s.promise(depth, high)
		}
	}
	s.now[depth] = 0
}

// take sets the room of the next depth to what n pods leave.
func (s *search) take(depth, n int) {
	room, next := s.rooms[depth], s.rooms[depth+1]
	for d, q := range s.size[depth] {
		next[d] = room[d] - float64(n)*q
	}
}

// promise bounds what n pods of the item at a depth and the items after it are worth.
func (s *search) promise(depth, n int) float64 {
	s.take(depth, n)
	return float64(n)*s.y[depth] + s.above(depth+1, s.rooms[depth+1])
}

// peak is the number of pods that promises most, and the largest number possible.
func (s *search) peak(depth int) (best, most int) {
	limit := s.most[depth]
	for d, q := range s.size[depth] {
		if q > 0 {
			limit = min(limit, math.Floor(s.rooms[depth][d]/q))
		}
	}
	most = int(limit)
	best = sort.Search(most, func(n int) bool { return s.promise(depth, n+1) <= s.promise(depth, n) })
	return best, most
}
