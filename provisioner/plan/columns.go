// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"math"
	"slices"
)

// program is the linear program over one state of the packer: its lots, and the columns found so far.
type program struct {
	k       *packer
	lots    []*lot
	pieces  []*piece // of the lots
	index   map[*piece]int
	sorted  []*piece // those of most value first
	sacks   []*knapsack
	singles []column
	m       *master
	effort  int       // how many nodes a search for a filling may visit
	center  []float64 // worths of the lots that gave the best bound so far, see note
	bound   float64
	known   []column // those of the first solution
}

// Bounds on the search for columns: rounds of it, columns that join a round, how far a filling is searched, and how small
// the gain of several rounds may be before it is searched farther or ends.
const (
	maxColumnRounds = 400
	columnsARound   = 24
	enoughColumns   = 2 * columnsARound // of those found
	columnEffort    = 100               // of a quick filling
	firstEffort     = 200
	roughEffort     = 40 // where sizes had to be put together: the program is about right only anyway
	deepEffort      = 16 * firstEffort
	deeper          = 4
	columnGap       = 1e-3 // how near to its bound a solution is near enough
	columnGain      = 1e-4
	gainOfOne       = 0.1 // the same for one pod: with few of them rounding to whole nodes loses more
	gainRounds      = 5
	columnWorth     = 1e-4 // what a column must be worth beyond its cost
)

// newProgram sets up the program for what is left; nil if there is nothing or too much variety.
func (k *packer) newProgram() *program {
	p := &program{k: k, index: map[*piece]int{}, effort: firstEffort}
	for _, sh := range k.shapes {
		p.sacks = append(p.sacks, &knapsack{sh: sh})
	}
	for _, l := range k.makeLots() {
		if c, ok := k.single(l); ok {
			l.index = len(p.lots)
			c.lots = []int{l.index}
			p.index[&l.piece] = l.index
			p.lots, p.singles = append(p.lots, l), append(p.singles, c)
			p.pieces = append(p.pieces, &l.piece)
		}
	}
	if len(p.lots) == 0 {
		return nil
	}
	if !p.lots[0].exact {
		p.effort = roughEffort
	}
	p.restart(nil)
	return p
}

// restart sets the program to what is left, with the known columns cut down to that. False if nothing is left.
func (p *program) restart(known []column) bool {
	demand := make([]float64, len(p.lots))
	total := 0
	for i, l := range p.lots {
		l.left = 0
		for _, r := range l.rows {
			l.left += r.left
		}
		total += l.left
		demand[i] = float64(l.left)
		if c, ok := p.k.single(l); ok && len(known) > 0 {
			c.lots = []int{i}
			p.singles[i] = c
		}
	}
	p.bound = 0
	for i, y := range p.center {
		p.bound += y * demand[i]
	}
	p.m = newMaster(demand, slices.Clip(slices.Clone(p.singles)))
	for _, c := range known[min(len(p.singles), len(known)):] {
		if c, ok := p.cut(c); ok {
			p.m.columns = append(p.m.columns, c)
		}
	}
	return total > 0
}

// cut cuts a column down to the pods that are left; false if there are none of them or no such node can be bought.
func (p *program) cut(c column) (column, bool) {
	if !p.k.affords(c.sh) {
		return c, false
	}
	if !p.exceeds(&c) {
		return c, true
	}
	out := column{sh: c.sh, cost: c.sh.cost}
	for x, i := range c.lots {
		l := p.lots[i]
		if n := min(c.count[x], l.left); n > 0 {
			out.lots, out.count = append(out.lots, i), append(out.count, n)
			out.cost += float64(n) * l.wishCost(c.sh)
		}
	}
	return out, len(out.lots) > 0
}

// exceeds reports whether the column holds more pods of a lot than are left.
func (p *program) exceeds(c *column) bool {
	for x, i := range c.lots {
		if c.count[x] > p.lots[i].left {
			return true
		}
	}
	return false
}

// pods is how many pods the lots have.
func (p *program) pods() int {
	n := 0
	for _, l := range p.lots {
		n += l.left
	}
	return n
}

// single is the cheapest column that holds nothing but the lot; false if no shape holds it.
func (k *packer) single(l *lot) (column, bool) {
	best := column{cost: math.Inf(1)}
	per := math.Inf(1)
	for _, sh := range k.shapes {
		if !sh.takes(l.set) || !k.affords(sh) {
			continue
		}
		if n := k.alone(sh, &l.piece); n > 0 {
			cost := sh.cost + float64(n)*l.wishCost(sh)
			if cost/float64(n) < per {
				per = cost / float64(n)
				best = column{sh: sh, count: []int{n}, cost: cost}
			}
		}
	}
	return best, best.sh != nil
}

// alone is how many pods of the piece a node of the shape holds that holds nothing else.
func (k *packer) alone(sh *shape, p *piece) int {
	f := &k.fill
	f.pieces, f.weight, f.dense = []*piece{p}, []float64{1}, []float64{1}
	f.sh, f.room, f.counts, f.ports, f.custom = sh, append(f.room[:0], sh.room...), []int{0}, f.ports[:0], 0
	clear(f.groups)
	return f.most(0)
}

// solve generates columns until the solution is near its bound or they gain hardly anything any more.
func (p *program) solve(rounds int) {
	p.m.solve()
	history := []float64{p.m.value()}
	gain := max(columnGain, gainOfOne/float64(p.pods()+1))
	for range rounds {
		v := p.m.value()
		if p.k.fill.fills > p.k.budget || v-p.bound <= columnGap*v {
			return
		}
		stalled := len(history) > gainRounds && history[len(history)-1-gainRounds]-v < gain*v
		if stalled || !p.extend() {
			if !p.deepen() {
				return
			}
			history = history[:0]
		}
		p.m.solve()
		history = append(history, p.m.value())
	}
}

// deepen has fillings searched with more effort; false if they are searched far enough. That is worth its while for the first
// solution of a program that knows every size.
func (p *program) deepen() bool {
	if p.known != nil || !p.lots[0].exact || p.effort >= deepEffort {
		return false
	}
	p.effort *= deeper
	return true
}

// extend adds good columns; false if none improves the solution. The worths of a solution jump about: half the way from them to
// those that gave the best bound so far, columns are better and the bound is, too (Wentges, 1997).
func (p *program) extend() bool {
	if len(p.center) > 0 {
		mixed := make([]float64, len(p.center))
		for i, y := range p.m.y {
			mixed[i] = (max(y, 0) + p.center[i]) / 2
		}
		if p.price(mixed) {
			return true
		}
	}
	return p.price(p.m.y)
}

// price looks for columns at the given worths and adds the best of those that improve the solution; false if there are none. It
// fills the shapes that promise most first, quickly, and only until it has found enough; where that finds nothing they are
// searched.
func (p *program) price(worths []float64) bool {
	for i, l := range p.lots {
		l.value = max(worths[i], 0)
	}
	shapes, times := p.promising()
	list := p.quick(shapes)
	if len(list) == 0 {
		list, times = p.search(shapes, times)
	} else {
		times = max(times, shapes[0].e)
	}
	p.note(worths, times)
	slices.SortStableFunc(list, func(a, b found) int { return cmp.Compare(b.gains, a.gains) })
	for _, f := range list[:min(len(list), columnsARound)] {
		p.m.columns = append(p.m.columns, f.c)
	}
	return len(list) > 0
}

// found is a column and what it gains, in parts of its cost.
type found struct {
	c     column
	gains float64
}

// add adds a filling to the columns found, if it gains.
func (p *program) add(list []found, sh *shape, takes []pieceTake) []found {
	c := p.column(sh, takes)
	if gains := -p.m.reduced(&c); gains > columnWorth {
		list = append(list, found{c, gains})
	}
	return list
}

// quick finds columns by filling shapes densest pods first. It comes to fillings that leave no room sooner than the search, which
// has a hard time where all pods are worth about what their room costs; but it says nothing where it finds none.
func (p *program) quick(shapes []promise) (list []found) {
	for _, s := range shapes {
		if len(list) == p.enough() {
			break
		}
		sh := s.sack.sh
		if takes, value := p.k.fill.fill(sh, p.pieces, nil, sh.cost*(1+columnWorth), columnEffort); value > sh.cost*(1+columnWorth) {
			list = p.add(list, sh, takes)
		}
	}
	return list
}

// search finds columns by branch and bound, as far as the effort goes, and how many times its cost any node can be worth, those
// not among the shapes included.
func (p *program) search(shapes []promise, others float64) (list []found, times float64) {
	times = others
	for _, s := range shapes {
		if len(list) == p.enough() {
			return list, max(times, s.e) // the others promise less
		}
		sh := s.sack.sh
		takes, value, top := s.sack.run(sh.cost*(1+columnWorth), p.effort)
		p.k.fill.fills += 1 + (p.effort-s.sack.left)/firstEffort
		times = max(times, min(top/sh.cost, s.e))
		if value > sh.cost*(1+columnWorth) {
			list = p.add(list, sh, takes)
		}
	}
	return list, times
}

// enough is how many columns a round looks for.
func (p *program) enough() int {
	if p.lots[0].exact {
		return enoughColumns
	}
	return columnsARound
}

// promise is a bound on how many times its cost a filling of a shape can be worth.
type promise struct {
	sack *knapsack
	e    float64
}

// promising lists the shapes that may be worth more than they cost, by what they promise for it, highest first, and the most that
// the others promise.
func (p *program) promising() (list []promise, others float64) {
	p.sorted = append(p.sorted[:0], p.pieces...)
	slices.SortFunc(p.sorted, func(a, b *piece) int { return cmp.Or(cmp.Compare(b.value, a.value), a.index-b.index) })
	for _, sack := range p.sacks {
		if !p.k.affords(sack.sh) {
			continue
		}
		e := sack.glance(p.sorted) / sack.sh.cost
		if e > 1+columnWorth {
			e = sack.start(p.sorted) / sack.sh.cost
		}
		if e > 1+columnWorth {
			list = append(list, promise{sack, e})
		} else {
			others = max(others, e)
		}
	}
	slices.SortStableFunc(list, func(a, b promise) int { return cmp.Compare(b.e, a.e) })
	return list, others
}

// note remembers worths under which no node holds more than so many times its cost, if what they say all pods cost at least is
// the most so far (Farley, 1990).
func (p *program) note(worths []float64, times float64) {
	if times <= 0 {
		return
	}
	bound := 0.0
	for i, d := range p.m.demand {
		bound += d * max(worths[i], 0) / times
	}
	if bound <= p.bound {
		return
	}
	p.bound = bound
	center := make([]float64, len(worths))
	for i, y := range worths {
		center[i] = max(y, 0) / times
	}
	p.center = center
}

func (p *program) column(sh *shape, takes []pieceTake) column {
	c := column{sh: sh, cost: sh.cost}
	for _, t := range takes {
		c.lots, c.count = append(c.lots, p.index[t.p]), append(c.count, t.n)
		c.cost += float64(t.n) * t.p.wishCost(sh)
	}
	return c
}

// appraise hands the worths of the lots down to their rows: within a lot, worth goes by size.
func (p *program) appraise() {
	for i, l := range p.lots {
		y := max(p.m.y[i], 1e-9)
		for _, r := range l.rows {
			r.value = y * p.k.bulk(r.size) / p.k.bulk(l.size)
		}
	}
}

// used is a column of the solution.
type used struct {
	*column
	level float64
}

// solution lists the columns in use, the most used first.
func (p *program) solution() []used {
	var out []used
	for r, col := range p.m.basis {
		if col >= 0 && p.m.level[r] > 1e-6 {
			out = append(out, used{&p.m.columns[col], p.m.level[r]})
		}
	}
	slices.SortStableFunc(out, func(a, b used) int {
		return cmp.Or(cmp.Compare(b.level, a.level), cmp.Compare(a.sh.cost, b.cost))
	})
	return out
}
