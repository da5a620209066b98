// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package greedy

import (
	"cmp"
	"slices"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/bench/plan/bound"
)

// Plan is what a baseline buys.
type Plan struct {
	Price float64
	Nodes int
}

// node is a node being filled: what is on it, and the shapes that still hold all of it, cheapest first.
type node struct {
	used   []int64
	caps   []int64
	kinds  capacity.Set
	shapes []int
	pods   int
}

// packer is the state of one packing.
type packer struct {
	p     bound.Problem
	kinds int
	nodes []*node
}

// Karpenter packs as Karpenter does: pods by CPU, then memory, largest first; each goes to the new node with the fewest pods
// that can still take it on some shape, or else to one more node; a node is bought as the cheapest shape that holds its
// pods. (karpenter-core, scheduler.go addToInflightNode and queue.go; without its cut to 600 types.)
func Karpenter(p bound.Problem) Plan {
	k := newPacker(p)
	for _, i := range bySize(p) {
		k.spread(i)
	}
	return k.buy()
}

// spread deals the pods of an item out, each to the node with the fewest pods.
func (k *packer) spread(i int) {
	it := &k.p.Items[i]
	open := slices.Clone(k.nodes)
	for range it.Count {
		// Nodes that refused the item once refuse it always: they only get fuller.
		slices.SortStableFunc(open, func(a, b *node) int { return cmp.Compare(a.pods, b.pods) })
		for len(open) > 0 && !k.add(open[0], it) {
			open = open[1:]
		}
		if len(open) == 0 {
			n := k.open(it)
			if n == nil {
				return
			}
			open = append(open, n)
		}
	}
}

// Largest buys the largest shape that does for the largest pod left, fills it with the largest pods first, and so on; at the
// end each node is bought as the cheapest shape that holds its pods.
func Largest(p bound.Problem) Plan {
	k := newPacker(p)
	order := bySize(p)
	left := make([]int64, len(p.Items))
	for i := range p.Items {
		left[i] = p.Items[i].Count
	}
	for _, i := range order {
		for left[i] > 0 {
			n := k.open(&p.Items[i])
			if n == nil {
				break
			}
			left[i]--
			big := slices.MaxFunc(n.shapes, func(a, b int) int { return cmp.Compare(p.Shapes[a].Price, p.Shapes[b].Price) })
			n.shapes = []int{big}
			for _, j := range order {
				for left[j] > 0 && k.add(n, &p.Items[j]) {
					left[j]--
				}
			}
			k.shrink(n)
		}
	}
	return k.buy()
}

func newPacker(p bound.Problem) *packer {
	p.Shapes = bound.Undominated(slices.Clone(p.Shapes))
	slices.SortStableFunc(p.Shapes, func(a, b bound.Shape) int { return cmp.Compare(a.Price, b.Price) })
	k := &packer{p: p}
	for i := range p.Items {
		k.kinds = max(k.kinds, p.Items[i].Kind+1)
	}
	return k
}

// bySize orders items by CPU, then memory, largest first.
func bySize(p bound.Problem) []int {
	order := make([]int, len(p.Items))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return slices.Compare(p.Items[b].Size, p.Items[a].Size) })
	return order
}

// open starts a node with one pod of the item, on any shape that holds it; nil if there is none.
func (k *packer) open(it *bound.Item) *node {
	n := &node{used: make([]int64, len(it.Size)), caps: slices.Clone(k.p.Caps), kinds: capacity.NewSet(k.kinds)}
	for s := range k.p.Shapes {
		n.shapes = append(n.shapes, s)
	}
	if !k.add(n, it) {
		return nil
	}
	k.nodes = append(k.nodes, n)
	return n
}

// add puts one pod of the item on the node if some shape holds all of it.
func (k *packer) add(n *node, it *bound.Item) bool {
	for _, g := range it.Groups {
		if n.caps[g] == 0 {
			return false
		}
	}
	var kept []int
	for _, s := range n.shapes {
		if k.holds(s, n, it) {
			kept = append(kept, s)
		}
	}
	if len(kept) == 0 {
		return false
	}
	n.shapes = kept
	n.kinds.Add(it.Kind)
	n.pods++
	for d, q := range it.Size {
		n.used[d] += q
	}
	for _, g := range it.Groups {
		n.caps[g]--
	}
	return true
}

func (k *packer) holds(s int, n *node, it *bound.Item) bool {
	shape := &k.p.Shapes[s]
	if !shape.Takes.Has(it.Kind) {
		return false
	}
	for d, q := range it.Size {
		if q > 0 && n.used[d]+q > shape.Room[d] {
			return false
		}
	}
	return true
}

// shrink makes the node the cheapest shape that holds its pods.
func (k *packer) shrink(n *node) {
	for s := range k.p.Shapes {
		shape := &k.p.Shapes[s]
		fits := n.kinds.AndNot(shape.Takes).Empty()
		for d, q := range n.used {
			fits = fits && q <= shape.Room[d]
		}
		if fits {
			n.shapes = []int{s}
			return
		}
	}
}

func (k *packer) buy() Plan {
	out := Plan{Nodes: len(k.nodes)}
	for _, n := range k.nodes {
		out.Price += k.p.Shapes[n.shapes[0]].Price
	}
	return out
}
