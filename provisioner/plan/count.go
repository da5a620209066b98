// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import "math"

// maxCount bounds the pods that are dealt to nodes exactly; of more, those beyond go to nodes that hold most for their cost.
const maxCount = 2000

// byCount packs pods that are all one to the packing at the least cost there is: with so many pods a shape holds, the cheapest set
// of nodes for n pods is found from those for fewer. It is false if it has nothing to do with this case.
func (k *packer) byCount() bool {
	var r *row
	for _, q := range k.rows {
		if q.left == 0 {
			continue
		}
		if r != nil {
			return false
		}
		r = q
	}
	if r == nil || r.clings() || r.wish != 0 {
		return false
	}
	shapes, holds := k.countShapes(r)
	if len(shapes) == 0 {
		return false
	}
	k.fillCounts(r, shapes, holds)
	if len(k.rows) == 1 {
		k.bound = math.Inf(1) // there is nothing to improve
	}
	return true
}

// countShapes are the shapes for pods of the row, cheapest first, that hold more of them than every cheaper one, and how many.
func (k *packer) countShapes(r *row) (shapes []*shape, holds []int) {
	most := 0
	for _, sh := range k.allShapes {
		if !sh.takes(r.set) || !k.affords(sh) {
			continue
		}
		if n := k.alone(sh, &r.piece); n > most {
			most = n
			shapes, holds = append(shapes, sh), append(holds, n)
		}
	}
	return shapes, holds
}

// fillCounts opens the cheapest set of nodes that holds the row's pods, the largest first.
func (k *packer) fillCounts(r *row, shapes []*shape, holds []int) {
	best := 0
	for i, sh := range shapes {
		if sh.cost*float64(holds[best]) < shapes[best].cost*float64(holds[i]) {
			best = i
		}
	}
	for r.left > maxCount && r.left > holds[best] && k.affords(shapes[best]) {
		if b := k.open(shapes[best]); r.give(b, holds[best]) == 0 {
			k.s.drop(b)
			break
		}
	}
	if r.left > maxCount {
		return
	}
	cost, last := make([]float64, r.left+1), make([]int, r.left+1)
	for n := 1; n <= r.left; n++ {
		cost[n] = math.Inf(1)
		for i, sh := range shapes {
			if c := cost[max(n-holds[i], 0)] + sh.cost; c < cost[n]*(1-1e-12) {
				cost[n], last[n] = c, i
			}
		}
	}
	bought := make([]int, len(shapes))
	for n := r.left; n > 0; n -= holds[last[n]] {
		bought[last[n]]++
	}
	for i := len(shapes) - 1; i >= 0; i-- {
		for ; bought[i] > 0 && r.left > 0; bought[i]-- {
			if !k.affords(shapes[i]) {
				k.tight = true
				return
			}
			if b := k.open(shapes[i]); r.give(b, holds[i]) == 0 {
				k.s.drop(b)
				return
			}
		}
	}
}
