// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bound

import (
	"cmp"
	"slices"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Problem is what to pack into what, without names: sizes and rooms are vectors over the same resources.
type Problem struct {
	Items  []Item
	Shapes []Shape
	// Caps bound how many pods of each group one node may hold.
	Caps []int64
}

// Item is a number of equal pods.
type Item struct {
	Size  []int64
	Count int64
	// Kind says which shapes will do: those with the kind in Takes.
	Kind int
	// Groups are indices into Caps.
	Groups []int
}

// Shape is a node that can be bought any number of times.
type Shape struct {
	Name string
	// Price in US dollars an hour.
	Price float64
	// Room is what a node has for pods, daemonset pods taken off.
	Room []int64
	// Takes are the kinds of items that may go on it.
	Takes capacity.Set
}

// Undominated leaves out shapes that another one beats or equals in price, room and the kinds it takes.
func Undominated(shapes []Shape) []Shape {
	slices.SortStableFunc(shapes, func(a, b Shape) int {
		return cmp.Or(cmp.Compare(a.Price, b.Price), slices.Compare(b.Room, a.Room), cmp.Compare(b.Takes.Len(), a.Takes.Len()))
	})
	var out []Shape
	for _, s := range shapes {
		if !slices.ContainsFunc(out, func(o Shape) bool { return o.beats(s) }) {
			out = append(out, s)
		}
	}
	return out
}

// beats reports whether everything s holds fits on o too, for a price that is not higher.
func (o Shape) beats(s Shape) bool {
	if o.Price > s.Price || !s.Takes.AndNot(o.Takes).Empty() {
		return false
	}
	for d := range s.Room {
		if o.Room[d] < s.Room[d] {
			return false
		}
	}
	return true
}

// fit is how many pods of an item a node of the shape can hold when it holds nothing else.
func (p *Problem) fit(s *Shape, it *Item) int64 {
	if !s.Takes.Has(it.Kind) {
		return 0
	}
	n := it.Count
	for d, q := range it.Size {
		if q > 0 {
			n = min(n, max(s.Room[d], 0)/q)
		}
	}
	for _, g := range it.Groups {
		n = min(n, p.Caps[g])
	}
	return n
}
