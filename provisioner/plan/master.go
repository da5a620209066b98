// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "math"

// column is one way to fill one node: a shape and how many pods of each lot it holds.
type column struct {
	sh    *shape
	lots  []int
	count []int
	cost  float64
}

// master is the linear program "cover the demand of every lot with columns, in fractions, at the least cost". It is solved by
// the revised simplex method with an explicit inverse, which for a hundred rows is both simple and fast. The first
// columns hold one lot each and are the first basis; a column that joins later leaves the basis feasible.
type master struct {
	demand  []float64
	columns []column
	basis   []int       // row → column; -1-i is the surplus of lot i
	inverse [][]float64 // of the basis
	level   []float64   // row → how often its column is used
	y       []float64   // what one more pod of each lot costs: the dual prices
	dir     []float64
}

// simplexSlack is what a reduced cost must exceed, in parts of the column's cost, to count as an improvement.
const simplexSlack = 1e-7

// newMaster starts with one column a lot, which holds count[0] of its own.
func newMaster(demand []float64, first []column) *master {
	n := len(demand)
	m := &master{demand: demand, columns: first, basis: make([]int, n), inverse: make([][]float64, n), level: make([]float64, n), y: make([]float64, n), dir: make([]float64, n)}
	for i, c := range first {
		f := float64(c.count[0])
		m.basis[i], m.inverse[i] = i, make([]float64, n)
		m.inverse[i][i], m.level[i], m.y[i] = 1/f, demand[i]/f, c.cost/f
	}
	return m
}

// value is the cost of the present solution.
func (m *master) value() float64 {
	sum := 0.0
	for i, d := range m.demand {
		sum += d * m.y[i]
	}
	return sum
}

// reduced is the column's reduced cost in parts of its cost.
func (m *master) reduced(c *column) float64 {
	v := c.cost
	for k, i := range c.lots {
		v -= float64(c.count[k]) * m.y[i]
	}
	return v / c.cost
}

// solve pivots until no known column improves the solution, or as often as is reasonable for its size.
func (m *master) solve() {
	for range 10 * (len(m.demand) + 10) {
		best, least := 0, -simplexSlack
		for j := range m.columns {
			if r := m.reduced(&m.columns[j]); r < least {
				best, least = j, r
			}
		}
		for i, v := range m.y {
			if v < least {
				best, least = -1-i, v
			}
		}
		if least >= -simplexSlack || !m.pivot(best) {
			return
		}
	}
}

// pivot brings a column into the basis; false if no row bounds how far.
func (m *master) pivot(col int) bool {
	cost := 0.0
	for r, inv := range m.inverse {
		v := 0.0
		if col < 0 {
			v = -inv[-1-col]
		} else {
			c := &m.columns[col]
			cost = c.cost
			for k, i := range c.lots {
				v += inv[i] * float64(c.count[k])
			}
		}
		m.dir[r] = v
	}
	leave, step := -1, math.Inf(1)
	for r, d := range m.dir {
		if d > 1e-9 {
			if t := max(m.level[r], 0) / d; t < step-1e-12 || (t <= step+1e-12 && leave >= 0 && d > m.dir[leave]) {
				leave, step = r, min(t, step)
			}
		}
	}
	if leave < 0 {
		return false
	}
	m.basis[leave] = col
	p, f := m.inverse[leave], m.dir[leave]
	for i := range p {
		p[i] /= f
	}
	m.level[leave] /= f
	for r, row := range m.inverse {
		g := m.dir[r]
		if r == leave || g == 0 {
			continue
		}
		for i, v := range p {
			row[i] -= g * v
		}
		m.level[r] -= g * m.level[leave]
	}
	// y changes by the entering column's reduced cost along the pivot row.
	delta := cost
	if col < 0 {
		delta = m.y[-1-col]
	} else {
		c := &m.columns[col]
		for k, i := range c.lots {
			delta -= float64(c.count[k]) * m.y[i]
		}
	}
	for i, v := range p {
		m.y[i] += delta * v
	}
	return true
}
