// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bound

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// tiny is a random problem small enough to be solved by trying everything.
func tiny(seed uint64) Problem {
	r := rand.New(rand.NewPCG(seed, 0))
	p := Problem{}
	kinds := 1 + r.IntN(2)
	for range r.IntN(3) {
		p.Caps = append(p.Caps, int64(1+r.IntN(2)))
	}
	for range 2 + r.IntN(3) {
		s := Shape{Price: 1 + float64(r.IntN(40))/10, Room: []int64{int64(4 + r.IntN(12)), int64(4 + r.IntN(12)), int64(2 + r.IntN(4))}, Takes: capacity.NewSet(kinds)}
		for k := range kinds {
			if r.IntN(4) > 0 {
				s.Takes.Add(k)
			}
		}
		p.Shapes = append(p.Shapes, s)
	}
	all := Shape{Price: 6, Room: []int64{20, 20, 8}, Takes: capacity.FullSet(kinds)}
	p.Shapes = append(p.Shapes, all)
	for range 2 + r.IntN(2) {
		it := Item{Size: []int64{int64(1 + r.IntN(6)), int64(r.IntN(7)), 1}, Count: int64(1 + r.IntN(3)), Kind: r.IntN(kinds)}
		for g := range p.Caps {
			if r.IntN(3) == 0 {
				it.Groups = append(it.Groups, g)
			}
		}
		p.Items = append(p.Items, it)
	}
	return p
}

// configurations lists everything one node of the shape can hold.
func configurations(p *Problem, s int) [][]int64 {
	var out [][]int64
	now := make([]int64, len(p.Items))
	var fill func(i int)
	fill = func(i int) {
		if i == len(p.Items) {
			out = append(out, slices.Clone(now))
			return
		}
		for n := int64(0); n <= p.Items[i].Count; n++ {
			now[i] = n
			if !holds(p, s, now) {
				break
			}
			fill(i + 1)
		}
		now[i] = 0
	}
	fill(0)
	return out
}

func holds(p *Problem, s int, counts []int64) bool {
	room, caps := slices.Clone(p.Shapes[s].Room), slices.Clone(p.Caps)
	for i, n := range counts {
		it := &p.Items[i]
		if n > 0 && !p.Shapes[s].Takes.Has(it.Kind) {
			return false
		}
		for d, q := range it.Size {
			if room[d] -= n * q; room[d] < 0 && q*n > 0 {
				return false
			}
		}
		for _, g := range it.Groups {
			if caps[g] -= n; caps[g] < 0 {
				return false
			}
		}
	}
	return true
}

// cheapest is the price of the best plan in whole nodes, by trying all of them.
func cheapest(p *Problem) float64 {
	type node struct {
		counts []int64
		price  float64
	}
	var nodes []node
	for s := range p.Shapes {
		for _, c := range configurations(p, s) {
			nodes = append(nodes, node{c, p.Shapes[s].Price})
		}
	}
	known := map[string]float64{}
	var solve func(left []int64) float64
	solve = func(left []int64) float64 {
		i := slices.IndexFunc(left, func(n int64) bool { return n > 0 })
		if i < 0 {
			return 0
		}
		key := fmt.Sprint(left)
		if v, ok := known[key]; ok {
			return v
		}
		best := math.Inf(1)
		for _, n := range nodes {
			if n.counts[i] == 0 {
				continue
			}
			rest := slices.Clone(left)
			for k, c := range n.counts {
				rest[k] = max(rest[k]-c, 0)
			}
			best = min(best, n.price+solve(rest))
		}
		known[key] = best
		return best
	}
	left := make([]int64, len(p.Items))
	for i := range p.Items {
		left[i] = p.Items[i].Count
	}
	return solve(left)
}

// program is the optimum of the configuration program with all its configurations listed.
func program(t *testing.T, p *Problem) float64 {
	t.Helper()
	single, err := p.singles()
	if err != nil {
		t.Fatal(err)
	}
	var demand []float64
	for i := range p.Items {
		demand = append(demand, float64(p.Items[i].Count))
	}
	m := newMaster(demand, single)
	for s := range p.Shapes {
		for _, counts := range configurations(p, s) {
			c := column{shape: s, price: p.Shapes[s].Price}
			for i, n := range counts {
				if n > 0 {
					c.items, c.count = append(c.items, i), append(c.count, float64(n))
				}
			}
			m.add(c)
		}
	}
	m.solve()
	return m.value()
}

// TestSolveAgainstBruteForce compares the bound, on small random problems, with the configuration program written out in full
// and with the cheapest plan there is.
func TestSolveAgainstBruteForce(t *testing.T) {
	const gap = 1e-3
	for seed := range uint64(300) {
		p := tiny(seed)
		got, err := Solve(tiny(seed), Options{Gap: gap})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		lp, best := program(t, &p), cheapest(&p)
		if lp > best*(1+1e-9) {
			t.Fatalf("seed %d: the program written out gives %.6f, more than the cheapest plan, %.6f: the simplex method is wrong", seed, lp, best)
		}
		if got.Value > lp*(1+1e-9) || got.Value < lp*(1-gap) {
			t.Errorf("seed %d: bound %.6f, the program's optimum is %.6f (cheapest plan %.6f)", seed, got.Value, lp, best)
		}
		if got.Master < lp*(1-1e-9) {
			t.Errorf("seed %d: the master's optimum %.6f is below the program's, %.6f", seed, got.Master, lp)
		}
		if got.Divisible > got.Value*(1+1e-9) {
			t.Errorf("seed %d: the bound for divisible pods, %.6f, is above the bound, %.6f", seed, got.Divisible, got.Value)
		}
		if whole := Round(p, got); whole < best*(1-1e-9) {
			t.Errorf("seed %d: rounding gives %.6f, less than the cheapest plan, %.6f", seed, whole, best)
		}
		sum := 0.0
		for i, y := range got.Worth {
			sum += y * float64(p.Items[i].Count)
		}
		if math.Abs(sum-got.Value) > 1e-9*got.Value {
			t.Errorf("seed %d: the worths sum up to %.9f, the bound is %.9f", seed, sum, got.Value)
		}
	}
}

// TestWorthsAreFeasible checks the certificate itself: under the worths of a result no configuration is worth more than it costs.
func TestWorthsAreFeasible(t *testing.T) {
	for seed := range uint64(300) {
		p := tiny(seed)
		got, err := Solve(tiny(seed), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for s := range p.Shapes {
			for _, counts := range configurations(&p, s) {
				worth := 0.0
				for i, n := range counts {
					worth += float64(n) * got.Worth[i]
				}
				if worth > p.Shapes[s].Price*(1+1e-9) {
					t.Fatalf("seed %d: %v on shape %d is worth %.9f and costs %.2f", seed, counts, s, worth, p.Shapes[s].Price)
				}
			}
		}
	}
}

// TestSearch compares branch and bound with trying everything, with much effort and with next to none.
func TestSearch(t *testing.T) {
	for seed := range uint64(300) {
		p := tiny(seed)
		r := rand.New(rand.NewPCG(seed, 7))
		y := make([]float64, len(p.Items))
		for i := range y {
			y[i] = r.Float64() * 2
		}
		for s := range p.Shapes {
			best := 0.0
			for _, counts := range configurations(&p, s) {
				v := 0.0
				for i, n := range counts {
					v += float64(n) * y[i]
				}
				best = max(best, v)
			}
			k := newKnapsack(&p, s)
			for _, effort := range []int{0, 1, 3, 1_000_000} {
				c, top, ok := k.start(y).run(0, effort)
				if top < best*(1-1e-12) {
					t.Fatalf("seed %d, shape %d, effort %d: bound %.9f is below the optimum %.9f", seed, s, effort, top, best)
				}
				if ok && (c.worth(y) > best*(1+1e-12) || !holds(&p, s, whole(&p, c))) {
					t.Fatalf("seed %d, shape %d, effort %d: %+v is worth %.9f, the optimum is %.9f", seed, s, effort, c, c.worth(y), best)
				}
				if effort > 3 && best > 0 && (c.worth(y) < best*(1-slack) || top > best*(1+2*slack)) {
					t.Fatalf("seed %d, shape %d: found %.9f, bound %.9f, the optimum is %.9f", seed, s, c.worth(y), top, best)
				}
			}
			if root := k.start(y).root(); root < best*(1-1e-12) {
				t.Fatalf("seed %d, shape %d: the root's bound %.9f is below the optimum %.9f", seed, s, root, best)
			}
		}
	}
}

func whole(p *Problem, c column) []int64 {
	out := make([]int64, len(p.Items))
	for k, i := range c.items {
		out[i] = int64(c.count[k])
	}
	return out
}

// TestDivisible checks the fractional knapsack by duality: what is taken fits and is worth as much as the prices bound.
func TestDivisible(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 3))
		n, rows := 1+r.IntN(12), 1+r.IntN(4)
		y, most, w, room := make([]float64, n), make([]float64, n), make([][]float64, n), make([]float64, rows)
		for d := range room {
			room[d] = float64(1+r.IntN(1000)) * math.Pow(1000, float64(d))
		}
		for i := range n {
			y[i], most[i], w[i] = r.Float64(), float64(1+r.IntN(5)), make([]float64, rows)
			for d := range rows {
				if r.IntN(4) > 0 {
					w[i][d] = room[d] * r.Float64()
				}
			}
		}
		u, x := divisible(y, w, room, most)
		value, above, used := 0.0, dot(u, room), make([]float64, rows)
		for i := range n {
			value += x[i] * y[i]
			above += most[i] * max(0, y[i]-dot(u, w[i]))
			for d := range rows {
				used[d] += x[i] * w[i][d]
			}
			if x[i] < -1e-9 || x[i] > most[i]+1e-9 {
				t.Fatalf("seed %d: takes %g of at most %g", seed, x[i], most[i])
			}
		}
		for d := range rows {
			if used[d] > room[d]*(1+1e-9) || u[d] < 0 {
				t.Fatalf("seed %d: resource %d: %g of %g used at price %g", seed, d, used[d], room[d], u[d])
			}
		}
		if math.Abs(above-value) > 1e-7*(1+value) {
			t.Fatalf("seed %d: worth %g, bound %g: not optimal", seed, value, above)
		}
	}
}

// TestAfter checks that going on from the result for other numbers of the same pods, or for another problem, gives no other bound.
func TestAfter(t *testing.T) {
	const gap = 1e-3
	for seed := range uint64(100) {
		first, err := Solve(tiny(seed), Options{Gap: gap})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []Problem{tiny(seed), tiny(seed + 1)} {
			for i := range p.Items {
				p.Items[i].Count += int64(i)
			}
			lp := program(t, &p)
			got, err := Solve(p, Options{Gap: gap, After: &first})
			if err != nil {
				t.Fatal(err)
			}
			if got.Value > lp*(1+1e-9) || got.Value < lp*(1-gap) {
				t.Errorf("seed %d: bound %.6f, the program's optimum is %.6f", seed, got.Value, lp)
			}
		}
	}
}

func TestSolveErrors(t *testing.T) {
	p := Problem{
		Items:  []Item{{Size: []int64{5}, Count: 1}},
		Shapes: []Shape{{Price: 1, Room: []int64{4}, Takes: capacity.FullSet(1)}},
	}
	if got, err := Solve(p, Options{}); err == nil {
		t.Errorf("an item that fits nowhere has the bound %g", got.Value)
	}
	if got, err := Solve(Problem{}, Options{}); err != nil || got.Value != 0 {
		t.Errorf("nothing to pack: bound %g, error %v", got.Value, err)
	}
}
