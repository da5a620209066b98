// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bound

import "math"

// relaxation solves the fractional knapsack with several resources, max y·x with w·x ≤ room and 0 ≤ x ≤ most, by the
// simplex method with bounded variables: as many rows as resources, so a handful. Its dual prices u give the bound that
// branch and bound prunes with.
type relaxation struct {
	basis   []int // row → variable; items are 0…n-1, then one slack a row
	inverse [][]float64
	level   []float64
	upper   []bool // variable sits at its upper bound
	in      []bool // variable is basic
}

// divisible returns dual prices of the resources, in worth per unit, and how much of each item is taken. They are optimal
// unless the method was stopped for length; whatever they are, prices are not negative, and that is all a valid bound needs.
func divisible(y []float64, w [][]float64, room, most []float64) (u, x []float64) {
	rows, n := len(room), len(y)
	// Everything in shares of the room, so that bytes and millicores are of one order.
	scaled := make([][]float64, n)
	for i := range scaled {
		scaled[i] = make([]float64, rows)
		for d, c := range room {
			if c > 0 {
				scaled[i][d] = w[i][d] / c
			}
		}
	}
	r := &relaxation{upper: make([]bool, n+rows), in: make([]bool, n+rows)}
	for d := range rows {
		r.basis, r.level = append(r.basis, n+d), append(r.level, 1)
		r.in[n+d] = true
		r.inverse = append(r.inverse, make([]float64, rows))
		r.inverse[d][d] = 1
	}
	for range 100 {
		u = r.prices(y, n)
		j, ok := r.entering(y, scaled, u)
		if !ok || !r.move(j, scaled, most, n) {
			break
		}
	}
	for d := range u {
		if u[d] = max(u[d], 0); room[d] > 0 {
			u[d] /= room[d]
		} else {
			u[d] = 0
		}
	}
	return u, r.solution(n, most)
}

func (r *relaxation) solution(n int, most []float64) []float64 {
	x := make([]float64, n)
	for i := range x {
		if r.upper[i] {
			x[i] = most[i]
		}
	}
	for row, v := range r.basis {
		if v < n {
			x[v] = max(r.level[row], 0)
		}
	}
	return x
}

func (r *relaxation) prices(y []float64, n int) []float64 {
	u := make([]float64, len(r.basis))
	for row, v := range r.basis {
		if v < n {
			for d := range u {
				u[d] += y[v] * r.inverse[row][d]
			}
		}
	}
	return u
}

// entering picks the variable whose change improves most.
func (r *relaxation) entering(y []float64, w [][]float64, u []float64) (int, bool) {
	best, gain := -1, 1e-10
	look := func(v int, g float64) {
		if r.in[v] {
			return
		}
		if r.upper[v] {
			g = -g
		}
		if g > gain {
			best, gain = v, g
		}
	}
	for i := range y {
		g, size := y[i], 0.0
		for d := range u {
			g -= u[d] * w[i][d]
			size += w[i][d]
		}
		look(i, g/max(size, 1e-9))
	}
	for d := range u {
		look(len(y)+d, -u[d])
	}
	return best, best >= 0
}

// move changes a variable as far as bounds allow, bringing it into the basis unless it only goes to its other bound.
func (r *relaxation) move(v int, w [][]float64, most []float64, n int) bool {
	rows := len(r.basis)
	dir := make([]float64, rows)
	for row := range dir {
		if v >= n {
			dir[row] = r.inverse[row][v-n]
			continue
		}
		for d := range rows {
			dir[row] += r.inverse[row][d] * w[v][d]
		}
	}
	limit := func(x int) float64 {
		if x < n {
			return most[x]
		}
		return math.Inf(1)
	}
	sign := 1.0
	if r.upper[v] {
		sign = -1
	}
	step, leave, toUpper := limit(v), -1, false
	for row, x := range r.basis {
		switch d := sign * dir[row]; {
		case d > 1e-11:
			if t := max(r.level[row], 0) / d; t < step {
				step, leave, toUpper = t, row, false
			}
		case d < -1e-11:
			if t := max(limit(x)-r.level[row], 0) / -d; t < step {
				step, leave, toUpper = t, row, true
			}
		}
	}
	if math.IsInf(step, 1) {
		return false
	}
	for row := range dir {
		r.level[row] -= sign * step * dir[row]
	}
	if leave < 0 {
		r.upper[v] = !r.upper[v]
		return true
	}
	out := r.basis[leave]
	r.in[out], r.upper[out] = false, toUpper
	value := step
	if r.upper[v] {
		value = limit(v) - step
	}
	r.basis[leave], r.in[v], r.upper[v], r.level[leave] = v, true, false, value
	p := r.inverse[leave]
	for d := range p {
		p[d] /= dir[leave]
	}
	for row := range r.inverse {
		if f := dir[row]; row != leave && f != 0 {
			for d := range p {
				r.inverse[row][d] -= f * p[d]
			}
		}
	}
	return true
}
