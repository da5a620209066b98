// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bound

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Options bound the effort; the zero value is right for hundreds of items and shapes.
type Options struct {
	// Gap is how near bound and master's optimum must come, relatively; 0 means 3e-4.
	Gap float64
	// Rounds is the most rounds of column generation; 0 means 1000.
	Rounds int
	// Time is after how long it is given up; 0 means never. What has been reached by then is a valid bound.
	Time time.Duration
	// After is the result for the same items, in other numbers, and the same shapes, if there is one: its configurations are
	// where to go on from. A result for anything else is not used.
	After *Result
}

// Result is a bound and how well it is known.
type Result struct {
	// Value is the lower bound in US dollars an hour.
	Value float64
	// Master is the optimum of the program over the configurations found, an upper bound on what the configuration
	// program can give. No better bound of this kind than Master exists.
	Master float64
	// Divisible is the bound if pods could be divided between nodes.
	Divisible float64
	// Worth is a worth of each item under which no configuration is worth more than it costs: the bound is Σ count·worth.
	Worth []float64
	// Buys is the master's solution: what a cheapest fractional plan buys.
	Buys []Buy
	// Rounds, Columns and Shapes are the size of the computation.
	Rounds, Columns, Shapes int

	columns []column
	items   []Item
	shapes  []Shape
}

// Buy is a configuration in the master's solution.
type Buy struct {
	Shape Shape
	// Times is how often it is bought, in fractions.
	Times float64
	// Items and Count say what one node holds.
	Items []int
	Count []float64
}

// Efforts are how many nodes a knapsack's search may visit: little while prices are still wild, more when the cheap search
// finds nothing any more, for those shapes whose searches leave most open: the bound is as good as the worst of them.
const (
	firstEffort = 200
	lastEffort  = 4_000_000
	shallow     = 3200 // up to here a search looks for whatever improves the master, beyond only for what spoils the bound most
	moreEffort  = 4
	patience    = 12
)

// Solve computes the bound. It fails if an item fits nowhere.
func Solve(p Problem, o Options) (Result, error) {
	p.Shapes = Undominated(p.Shapes)
	single, err := p.singles()
	if err != nil || len(single) == 0 {
		return Result{}, err
	}
	g := newGenerator(&p, o, single)
	g.relax(single)
	relaxed := g.best
	if after := o.After; after != nil && p.like(after) {
		g.resume(after)
	} else {
		g.seed()
	}
	g.last = g.master.value()
	for g.round() {
	}
	r := g.result()
	r.Divisible = relaxed
	return r, nil
}

// singles are the cheapest configurations that hold one item only.
func (p *Problem) singles() ([]column, error) {
	out := make([]column, len(p.Items))
	for i := range p.Items {
		best := -1.0
		for s := range p.Shapes {
			n := float64(p.fit(&p.Shapes[s], &p.Items[i]))
			if n == 0 {
				continue
			}
			if rate := p.Shapes[s].Price / n; best < 0 || rate < best {
				best = rate
				out[i] = column{shape: s, price: p.Shapes[s].Price, items: []int{i}, count: []float64{n}}
			}
		}
		if best < 0 {
			return nil, fmt.Errorf("item %d of %d (size %v) fits no shape", i, len(p.Items), p.Items[i].Size)
		}
	}
	return out, nil
}

// generator is the state of one column generation.
type generator struct {
	p         *Problem
	o         Options
	demand    []float64
	master    *master
	knapsacks []*knapsack
	rounds    int
	stalled   int     // rounds without progress
	last      float64 // the master's optimum of the round before
	best      float64
	worth     []float64
	deadline  time.Time
}

func newGenerator(p *Problem, o Options, single []column) *generator {
	if o.Gap == 0 {
		o.Gap = 3e-4
	}
	if o.Rounds == 0 {
		o.Rounds = 1000
	}
	g := &generator{p: p, o: o}
	if o.Time > 0 {
		g.deadline = time.Now().Add(o.Time)
	}
	for i := range p.Items {
		g.demand = append(g.demand, float64(p.Items[i].Count))
	}
	for s := range p.Shapes {
		if k := newKnapsack(p, s); len(k.items) > 0 {
			g.knapsacks = append(g.knapsacks, k)
		}
	}
	g.master = newMaster(g.demand, single)
	g.worth = make([]float64, len(p.Items))
	return g
}

// relax solves the program in which pods can be divided: its bound is found at once, is near the true one where nodes hold
// many pods, and its worths are where the search for the true one starts.
func (g *generator) relax(single []column) {
	m := newMaster(g.demand, slices.Clone(single))
	for range g.o.Rounds {
		m.solve()
		y := positive(m.duals())
		worth := g.mix(y)
		added := g.divide(m, worth, y)
		if added == 0 && g.best > 0 {
			added = g.divide(m, y, y)
		}
		if added == 0 || m.value()-g.best <= 1e-5*m.value() {
			return
		}
	}
}

// divide prices all shapes with divisible pods, takes the bound that follows and adds what improves the master.
func (g *generator) divide(m *master, worth, y []float64) (added int) {
	ratio := 0.0
	for _, k := range g.knapsacks {
		if top := k.glance(worth); top <= k.price {
			ratio = max(ratio, top/k.price)
			continue
		}
		s := k.start(worth)
		top := s.root()
		ratio = max(ratio, top/k.price)
		if top < k.price {
			continue
		}
		if c := s.fractional(); c.worth(y) > c.price*(1+1e-7) {
			m.add(c)
			added++
		}
	}
	g.improve(worth, ratio)
	return added
}

// seed gives the master whole configurations of the shapes that are worth their price, or nearly, at the best worths so far.
func (g *generator) seed() {
	for _, k := range g.knapsacks {
		s := k.start(g.worth)
		if s.root() < k.price*0.95 {
			continue
		}
		if c, _, ok := s.run(0, firstEffort); ok {
			g.master.add(c)
		}
	}
}

// like reports whether the result is for the same items, numbers aside, and the same shapes.
func (p *Problem) like(r *Result) bool {
	return slices.EqualFunc(p.Items, r.items, func(a, b Item) bool {
		return a.Kind == b.Kind && slices.Equal(a.Size, b.Size) && slices.Equal(a.Groups, b.Groups)
	}) && slices.EqualFunc(p.Shapes, r.shapes, func(a, b Shape) bool {
		return a.Name == b.Name && a.Price == b.Price && slices.Equal(a.Room, b.Room)
	})
}

// resume takes over the configurations of a result and, if that is better, its worths.
func (g *generator) resume(r *Result) {
	for _, c := range r.columns {
		fits := true
		for k, i := range c.items {
			fits = fits && c.count[k] <= g.demand[i]
		}
		if fits {
			g.master.add(c)
		}
	}
	g.price(r.Worth, r.Worth)
}

// mix is half the way from the worths of the best bound so far to y: master duals jump about, and the bound of a point
// between is better and steers better (Wentges, 1997).
func (g *generator) mix(y []float64) []float64 {
	if g.best == 0 {
		return y
	}
	out := make([]float64, len(y))
	for i := range y {
		out[i] = (y[i] + g.worth[i]) / 2
	}
	return out
}

func positive(y []float64) []float64 {
	for i := range y {
		y[i] = max(y[i], 0)
	}
	return y
}

// round solves the master and prices all shapes; false when there is nothing left to do.
func (g *generator) round() bool {
	g.rounds++
	g.master.solve()
	y := positive(g.master.duals())
	bound, optimum := g.best, g.last
	g.last = g.master.value()
	found := g.price(g.mix(y), y)
	if found == 0 {
		found = g.price(y, y)
	}
	if g.best > bound*(1+1e-5) || g.last < optimum*(1-1e-4) {
		g.stalled = 0
	} else {
		g.stalled++
	}
	switch {
	case g.master.value()-g.best <= g.o.Gap*g.master.value():
		return false
	case g.rounds >= g.o.Rounds, !g.deadline.IsZero() && time.Now().After(g.deadline):
		return false
	case found > 0 && g.stalled < patience:
		return true
	}
	g.stalled = 0
	return g.deepen()
}

// deepen has those shapes searched farther whose searches were cut short and leave most open; false if there are none.
func (g *generator) deepen() bool {
	most := 0.0
	for _, k := range g.knapsacks {
		if k.effort < lastEffort {
			most = max(most, k.excess)
		}
	}
	if most == 0 {
		return false
	}
	for _, k := range g.knapsacks {
		if k.excess >= most/10 {
			k.effort = min(k.effort*moreEffort, lastEffort)
		}
	}
	return true
}

// price solves the knapsacks under the given worths, takes the bound that follows and adds configurations that improve
// the master, whose duals are y. It returns how many it added.
func (g *generator) price(worth, y []float64) (added int) {
	type priced struct {
		s    *search
		root float64
	}
	ratio, reached := 0.0, 1.0
	var all []priced
	for _, k := range g.knapsacks {
		k.excess = 0
		if top := k.glance(worth); top <= k.price {
			ratio = max(ratio, top/k.price)
			continue
		}
		s := k.start(worth)
		all = append(all, priced{s, s.root()})
	}
	slices.SortStableFunc(all, func(a, b priced) int {
		return cmp.Compare(b.root/b.s.k.price, a.root/a.s.k.price)
	})
	// search looks for a configuration worth more than so many times its price and returns the bound that its end leaves.
	search := func(q priced, times float64, effort int) float64 {
		k := q.s.k
		c, top, ok := q.s.run(k.price*times, effort)
		if ok {
			reached = max(reached, c.worth(worth)/k.price)
			if c.worth(y) > c.price*(1+1e-7) {
				g.master.add(c)
				added++
			}
		}
		return min(top, q.root) / k.price
	}
	var open []priced
	for _, q := range all {
		k := q.s.k
		if q.root <= k.price*(1+slack) {
			ratio = max(ratio, q.root/k.price)
			break // the others promise less
		}
		top := search(q, 1, min(k.effort, shallow))
		switch {
		case q.s.left > 0:
			ratio = max(ratio, top)
		case k.effort > shallow:
			open = append(open, q)
		default:
			k.excess = top - 1
			ratio = max(ratio, top)
		}
	}
	for _, q := range open { // the bound cannot become better than what has been reached: that is far enough
		top := search(q, reached, q.s.k.effort)
		if q.s.left <= 0 {
			q.s.k.excess = top - reached
		}
		ratio = max(ratio, top)
	}
	g.improve(worth, ratio)
	return added
}

// improve takes the bound of the worths, of which no node holds more than ratio times its price, if it is the best so far.
func (g *generator) improve(worth []float64, ratio float64) {
	if ratio <= 0 {
		return
	}
	bound := 0.0
	for i, d := range g.demand {
		bound += d * worth[i] / ratio
	}
	if bound <= g.best {
		return
	}
	g.best = bound
	better := make([]float64, len(worth))
	for i := range worth {
		better[i] = worth[i] / ratio
	}
	g.worth = better
}

func (c column) worth(y []float64) float64 {
	sum := 0.0
	for k, i := range c.items {
		sum += c.count[k] * y[i]
	}
	return sum
}

func (g *generator) result() Result {
	r := Result{
		Value: g.best, Master: g.master.value(), Worth: g.worth, Rounds: g.rounds, Columns: len(g.master.columns), Shapes: len(g.knapsacks),
		columns: g.master.columns, items: g.p.Items, shapes: g.p.Shapes,
	}
	for row, col := range g.master.basis {
		if col < 0 || g.master.level[row] < tolerance {
			continue
		}
		c := g.master.columns[col]
		r.Buys = append(r.Buys, Buy{Shape: g.p.Shapes[c.shape], Times: g.master.level[row], Items: c.items, Count: c.count})
	}
	slices.SortStableFunc(r.Buys, func(a, b Buy) int { return cmp.Compare(b.Times*b.Shape.Price, a.Times*a.Shape.Price) })
	return r
}
