// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "math"

// relaxation solves the knapsack whose pods may be divided, max worth·x with size·x ≤ room and 0 ≤ x ≤ most, by the simplex
// method with bounded variables: as many rows as resources, so a handful. Only the dual prices of the resources are of interest:
// whatever they are, as long as they are not negative, they bound what a filling is worth. All memory is kept for the next time.
type relaxation struct {
	rows, n int
	worth   []float64
	size    []float64 // in shares of the room, so that bytes and millicores are of one order
	most    []float64
	basis   []int // row → variable; pieces are 0…n-1, then one slack a row
	inverse []float64
	level   []float64
	dir     []float64
	u       []float64
	upper   []bool // the variable is at its upper bound
	in      []bool // the variable is basic
}

// simplexSteps bounds the steps; prices are good enough long before.
const simplexSteps = 100

// prices returns prices of the resources, in worth per unit. size holds len(room) numbers a piece.
func (r *relaxation) prices(worth, size, room, most []float64) []float64 {
	r.rows, r.n, r.worth, r.most = len(room), len(worth), worth, most
	r.size = r.size[:0]
	for i := range worth {
		for d, c := range room {
			r.size = append(r.size, size[i*r.rows+d]/c)
		}
	}
	r.reset()
	for range simplexSteps {
		r.price()
		v, ok := r.entering()
		if !ok || !r.move(v) {
			break
		}
	}
	out := make([]float64, r.rows)
	for d, u := range r.u {
		out[d] = max(u, 0) / room[d]
	}
	return out
}

// reset takes nothing of any piece: the slacks are the basis.
func (r *relaxation) reset() {
	r.basis, r.inverse = r.basis[:0], append(r.inverse[:0], make([]float64, r.rows*r.rows)...)
	r.level, r.dir, r.u = r.level[:0], append(r.dir[:0], make([]float64, r.rows)...), append(r.u[:0], make([]float64, r.rows)...)
	r.upper, r.in = append(r.upper[:0], make([]bool, r.n+r.rows)...), append(r.in[:0], make([]bool, r.n+r.rows)...)
	for d := range r.rows {
		r.basis, r.level = append(r.basis, r.n+d), append(r.level, 1)
		r.in[r.n+d], r.inverse[d*r.rows+d] = true, 1
	}
}

// price sets the dual prices of the basis.
func (r *relaxation) price() {
	clear(r.u)
	for row, v := range r.basis {
		if v < r.n {
			for d := range r.u {
				r.u[d] += r.worth[v] * r.inverse[row*r.rows+d]
			}
		}
	}
}

// entering picks the variable whose change improves most; false if there is none.
func (r *relaxation) entering() (int, bool) {
	best, gain := -1, 1e-10
	look := func(v int, g float64) {
		if r.upper[v] {
			g = -g
		}
		if g > gain && !r.in[v] {
			best, gain = v, g
		}
	}
	for i, g := range r.worth {
		sum := 0.0
		for d, v := range r.size[i*r.rows : (i+1)*r.rows] {
			g -= r.u[d] * v
			sum += v
		}
		look(i, g/max(sum, 1e-9))
	}
	for d, u := range r.u {
		look(r.n+d, -u)
	}
	return best, best >= 0
}

// limit is the upper bound of a variable.
func (r *relaxation) limit(v int) float64 {
	if v < r.n {
		return r.most[v]
	}
	return math.Inf(1)
}

// move changes a variable as far as the bounds allow, and brings it into the basis unless it only goes to its other bound. It is
// false if nothing bounds it.
func (r *relaxation) move(v int) bool {
	for row := range r.dir {
		if v >= r.n {
			r.dir[row] = r.inverse[row*r.rows+v-r.n]
			continue
		}
		r.dir[row] = dot(r.inverse[row*r.rows:(row+1)*r.rows], r.size[v*r.rows:])
	}
	sign := 1.0
	if r.upper[v] {
		sign = -1
	}
	step, leave, toUpper := r.limit(v), -1, false
	for row, x := range r.basis {
		switch d := sign * r.dir[row]; {
		case d > 1e-11:
			if t := max(r.level[row], 0) / d; t < step {
				step, leave, toUpper = t, row, false
			}
		case d < -1e-11:
			if t := max(r.limit(x)-r.level[row], 0) / -d; t < step {
				step, leave, toUpper = t, row, true
			}
		}
	}
	if math.IsInf(step, 1) {
		return false
	}
	for row := range r.dir {
		r.level[row] -= sign * step * r.dir[row]
	}
	if leave < 0 {
		r.upper[v] = !r.upper[v]
		return true
	}
	value := step
	if r.upper[v] {
		value = r.limit(v) - step
	}
	out := r.basis[leave]
	r.in[out], r.upper[out] = false, toUpper
	r.basis[leave], r.in[v], r.upper[v], r.level[leave] = v, true, false, value
	r.turn(leave)
	return true
}

// turn updates the inverse after a row's variable was exchanged.
func (r *relaxation) turn(leave int) {
	p, f := r.inverse[leave*r.rows:(leave+1)*r.rows], r.dir[leave]
	for d := range p {
		p[d] /= f
	}
	for row, g := range r.dir {
		if row == leave || g == 0 {
			continue
		}
		for d, v := range p {
			r.inverse[row*r.rows+d] -= g * v
		}
	}
}
