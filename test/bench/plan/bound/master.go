// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bound

import "math"

// column is a configuration: how many pods of each item a node of a shape holds, at its price.
type column struct {
	shape int
	price float64
	items []int
	count []float64
}

// master is the linear program over the configurations known so far: cover every item's demand at the least price. It
// is solved by the revised simplex method with an explicit inverse, which for some hundred rows is both the simplest and
// fast. Adding columns keeps the basis feasible, so each solve goes on where the last one ended.
type master struct {
	demand  []float64
	columns []column // the first len(demand) are one item each, the first basis; surplus columns are not listed
	basis   []int    // row → column; -1-i is the surplus of item i
	inverse [][]float64
	level   []float64 // row → value of its basic column
	pivots  int
}

const (
	tolerance  = 1e-9
	refreshing = 200 // pivots after which the inverse is computed anew
)

// newMaster starts from one configuration an item that holds nothing else.
func newMaster(demand []float64, single []column) *master {
	m := &master{demand: demand, columns: single}
	for i := range single {
		m.basis = append(m.basis, i)
	}
	m.refresh()
	return m
}

func (m *master) add(c column) { m.columns = append(m.columns, c) }

// price is the price of a basic column.
func (m *master) price(col int) float64 {
	if col < 0 {
		return 0
	}
	return m.columns[col].price
}

// duals are the worths of the items under the present basis.
func (m *master) duals() []float64 {
	y := make([]float64, len(m.demand))
	for r, col := range m.basis {
		if c := m.price(col); c != 0 {
			for i, v := range m.inverse[r] {
				y[i] += c * v
			}
		}
	}
	return y
}

// value is the price of the present solution.
func (m *master) value() float64 {
	sum := 0.0
	for r, col := range m.basis {
		sum += m.price(col) * m.level[r]
	}
	return sum
}

// solve pivots until no known column improves the solution.
func (m *master) solve() {
	for range 50 * (len(m.demand) + 20) {
		y := m.duals()
		col, ok := m.entering(y)
		if !ok || !m.pivot(col) {
			return
		}
	}
}

// entering is the column with the most negative reduced price, relative to its price.
func (m *master) entering(y []float64) (int, bool) {
	best, least := 0, -tolerance
	for j := range m.columns {
		c := &m.columns[j]
		d := c.price
		for k, i := range c.items {
			d -= c.count[k] * y[i]
		}
		if d /= c.price; d < least {
			best, least = j, d
		}
	}
	for i, v := range y { // the surplus of item i has reduced price y[i]
		if v < least {
			best, least = -1-i, v
		}
	}
	return best, least < -tolerance
}

// pivot brings a column into the basis; false if it cannot improve anything.
func (m *master) pivot(col int) bool {
	n := len(m.demand)
	dir := make([]float64, n)
	for r := range n {
		if col < 0 {
			dir[r] = -m.inverse[r][-1-col]
			continue
		}
		c := &m.columns[col]
		for k, i := range c.items {
			dir[r] += m.inverse[r][i] * c.count[k]
		}
	}
	leave, step := -1, math.Inf(1)
	for r, d := range dir {
		// Among equal ratios the largest pivot is the most stable one.
		if d > tolerance {
			if t := max(m.level[r], 0) / d; t < step-1e-12 || (t <= step+1e-12 && d > dir[leave]) {
				leave, step = r, min(t, step)
			}
		}
	}
	if leave < 0 {
		return false
	}
	m.basis[leave] = col
	if m.pivots++; m.pivots%refreshing == 0 {
		return m.refresh()
	}
	p := m.inverse[leave]
	for i := range p {
		p[i] /= dir[leave]
	}
	m.level[leave] /= dir[leave]
	for r := range n {
		f := dir[r]
		if r == leave || f == 0 {
			continue
		}
		row := m.inverse[r]
		for i := range row {
			row[i] -= f * p[i]
		}
		m.level[r] -= f * m.level[leave]
	}
	return true
}

// refresh computes the inverse of the basis and the levels by Gauss-Jordan elimination; false if the basis is singular.
func (m *master) refresh() bool {
	n := len(m.demand)
	a := make([][]float64, n) // basis | identity
	for r := range a {
		a[r] = make([]float64, 2*n)
		a[r][n+r] = 1
	}
	for k, col := range m.basis {
		if col < 0 {
			a[-1-col][k] = -1
			continue
		}
		c := &m.columns[col]
		for x, i := range c.items {
			a[i][k] = c.count[x]
		}
	}
	for k := range n {
		p := k
		for r := k + 1; r < n; r++ {
			if math.Abs(a[r][k]) > math.Abs(a[p][k]) {
				p = r
			}
		}
		if math.Abs(a[p][k]) < 1e-12 {
			return false
		}
		a[k], a[p] = a[p], a[k]
		eliminate(a, k)
	}
	m.inverse, m.level = make([][]float64, n), make([]float64, n)
	for r := range n {
		m.inverse[r] = a[r][n:]
		for i, d := range m.demand {
			m.level[r] += m.inverse[r][i] * d
		}
	}
	return true
}

// eliminate makes column k of the matrix the k-th unit vector.
func eliminate(a [][]float64, k int) {
	p := a[k]
	f := p[k]
	for i := range p {
		p[i] /= f
	}
	for r := range a {
		if f := a[r][k]; r != k && f != 0 {
			row := a[r]
			for i := range row {
				row[i] -= f * p[i]
			}
		}
	}
}
