// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bound

import (
	"cmp"
	"math"
	"slices"
)

// Round turns a result into a plan in whole nodes and returns its price: every configuration of the master's solution is
// bought as often as it is wanted in whole, and what is left is packed node by node, each time the configuration worth most
// per dollar. It obeys what the problem says and so is a price that can be had, unless rules the problem leaves out forbid
// it. Between it and the bound lies the cheapest plan.
func Round(p Problem, r Result) float64 {
	p.Shapes = r.shapes
	p.Items = slices.Clone(p.Items)
	price := 0.0
	for _, b := range r.Buys {
		n := math.Floor(b.Times + 1e-9)
		for k, i := range b.Items {
			p.Items[i].Count -= int64(n * b.Count[k])
		}
		price += n * b.Shape.Price
	}
	for i := range p.Items {
		p.Items[i].Count = max(p.Items[i].Count, 0)
	}
	for {
		c, ok := p.best(r.Worth)
		if !ok {
			return price
		}
		price += c.price
		for k, i := range c.items {
			p.Items[i].Count -= int64(c.count[k])
		}
	}
}

// best is the configuration of the items left that is worth most per dollar; false when nothing is left.
func (p *Problem) best(worth []float64) (column, bool) {
	type priced struct {
		s    *search
		root float64
	}
	// An item nothing is paid for has still to go somewhere.
	y := make([]float64, len(worth))
	for i, v := range worth {
		y[i] = max(v, 1e-9)
	}
	var all []priced
	for s := range p.Shapes {
		if k := newKnapsack(p, s); len(k.items) > 0 {
			q := k.start(y)
			all = append(all, priced{q, q.root()})
		}
	}
	slices.SortStableFunc(all, func(a, b priced) int { return cmp.Compare(b.root/b.s.k.price, a.root/a.s.k.price) })
	var out column
	top := 0.0
	for _, q := range all {
		if q.root/q.s.k.price <= top {
			break // the others promise less
		}
		c, _, ok := q.s.run(top*q.s.k.price, firstEffort)
		if v := c.worth(y) / q.s.k.price; ok && v > top {
			out, top = c, v
		}
	}
	return out, top > 0
}
