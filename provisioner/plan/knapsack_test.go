// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"math/rand/v2"
	"testing"
)

// TestKnapsack compares the search for a filling with all fillings there are.
func TestKnapsack(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	found := 0
	for round := range 400 {
		k, pieces := drawKnapsack(r)
		best := bestFilling(pieces, k.sh.room, map[int]int{}, 0)
		root := k.start(pieces)
		takes, value, top := k.run(0, 1_000_000)
		if root < best*(1-1e-9) || top < best*(1-1e-9) {
			t.Errorf("round %d: the bounds are %.6f and %.6f, a filling is worth %.6f", round, root, top, best)
		}
		if value < best*(1-2*knapsackSlack) {
			t.Errorf("round %d: the filling found is worth %.6f, the best %.6f", round, value, best)
		}
		checkFilling(t, k.sh, takes, value)
		if len(takes) > 1 {
			found++
		}
		if glance := k.glance(pieces); glance < best*(1-1e-9) {
			t.Errorf("round %d: with the prices of the last time the bound is %.6f, a filling is worth %.6f", round, glance, best)
		}
		if _, _, top := k.run(0, 2); top < best*(1-1e-9) {
			t.Errorf("round %d: the bound of a search cut short is %.6f, a filling is worth %.6f", round, top, best)
		}
	}
	if found < 200 {
		t.Errorf("only %d rounds have a filling of several pieces, the test shows little", found)
	}
}

// drawKnapsack draws a shape and pieces, those of most value first, some with rules about each other.
func drawKnapsack(r *rand.Rand) (*knapsack, []*piece) {
	sh := &shape{room: []float64{float64(4 + r.IntN(12)), float64(4 + r.IntN(12)), float64(r.IntN(4))}, accepts: []uint64{1}, cost: 1}
	var pieces []*piece
	value := 10.0
	for i := range 2 + r.IntN(7) {
		p := &piece{index: i, size: []float64{float64(1 + r.IntN(6)), float64(1 + r.IntN(6)), float64(r.IntN(6) / 5)}, left: 1 + r.IntN(4), value: value}
		value *= 0.6 + 0.4*r.Float64()
		if r.IntN(4) == 0 {
			p.groups = []group{{id: r.IntN(2), most: 1 + r.IntN(2)}}
		}
		if r.IntN(4) == 0 {
			p.custom = 1 + r.IntN(2)
		}
		pieces = append(pieces, p)
	}
	return &knapsack{sh: sh}, pieces
}

// bestFilling is what the filling is worth that is worth most, by trying all.
func bestFilling(pieces []*piece, room []float64, groups map[int]int, custom int) float64 {
	if len(pieces) == 0 {
		return 0
	}
	p := pieces[0]
	best := bestFilling(pieces[1:], room, groups, custom)
	left := append([]float64(nil), room...)
	for n := 1; n <= p.left; n++ {
		for d, v := range p.size {
			if left[d] -= v; left[d] < 0 {
				return best
			}
		}
		with := maps.Clone(groups)
		for _, g := range p.groups {
			if with[g.id] += n; with[g.id] > g.most {
				return best
			}
		}
		label := custom
		if p.custom != 0 {
			if label != 0 && label != p.custom {
				return best
			}
			label = p.custom
		}
		best = max(best, float64(n)*p.value+bestFilling(pieces[1:], left, with, label))
	}
	return best
}

// checkFilling reports a filling that is not worth what is said, or that the shape does not hold.
func checkFilling(t *testing.T, sh *shape, takes []pieceTake, value float64) {
	t.Helper()
	sum := 0.0
	left := append([]float64(nil), sh.room...)
	for _, k := range takes {
		sum += float64(k.n) * k.p.value
		for d, v := range k.p.size {
			left[d] -= float64(k.n) * v
		}
		if k.n > k.p.left {
			t.Errorf("the filling has %d pods of a piece of %d", k.n, k.p.left)
		}
	}
	if sum < value*(1-1e-9) || sum > value*(1+1e-9) {
		t.Errorf("the filling is worth %.6f, it says %.6f", sum, value)
	}
	for d, v := range left {
		if v < 0 {
			t.Errorf("the filling has %.0f more of resource %d than there is", -v, d)
		}
	}
}
