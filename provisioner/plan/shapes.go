// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// shape is a node for sale: an offering of a pool.
type shape struct {
	pool     *pool
	offering int
	kind     int     // index of its type in the catalogue
	price    float64 // US dollars an hour
	cost     float64 // what the choice goes by: the price and what is stated beside it
	room     []float64
	accepts  []uint64  // the packer's sets that hold the offering
	unmet    []float64 // by wish: what the offering leaves to be desired, in parts
	ratio    float64   // memory a core
	// What the resources were worth the last time they were valued, in parts of the node's worth, and those of them beside CPU
	// and memory that had a worth.
	worths []float64
	others []int
}

// takes reports whether pods of a set may be on the node.
func (sh *shape) takes(set int) bool { return sh.accepts[set/64]&(1<<(set%64)) != 0 }

// makeShapes lists the shapes worth looking at, cheapest first: those that no cheaper shape equals or beats in everything,
// acceptance by pods included.
func (k *packer) makeShapes() {
	var all []*shape
	k.ceiling = math.Inf(1)
	for i := k.from; i < k.to; i++ {
		all = append(all, k.shapesOf(k.s.pools[i])...)
	}
	slices.SortStableFunc(all, func(a, b *shape) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), -slices.Compare(a.room, b.room))
	})
	for _, sh := range all {
		if !slices.ContainsFunc(k.allShapes, func(o *shape) bool { return k.beats(o, sh) }) {
			k.allShapes = append(k.allShapes, sh)
		}
	}
	k.shapes = k.allShapes
	if len(k.shapes) <= maxShapes {
		return
	}
	kinds := k.shapeKinds()
	for step := 1.05; len(k.shapes) > maxShapes && step < 100; step *= 1.05 {
		k.shapes = k.thinned(kinds, step)
	}
}

// maxShapes bounds the shapes that are tried for a node. The rest still serves to exchange a node for the cheapest that
// holds its pods.
const maxShapes = 96

// shapeKind is what shapes have in common that one of them can stand for, if they cost about the same: they accept the same
// pods and have about the same memory and devices a core.
type shapeKind struct {
	accepts      int
	mix, special float64
}

// shapeKinds are the kinds of all shapes.
func (k *packer) shapeKinds() []shapeKind {
	ids := map[string]int{}
	out := make([]shapeKind, len(k.allShapes))
	for i, sh := range k.allShapes {
		key := fmt.Sprint(sh.accepts, sh.unmet)
		if _, ok := ids[key]; !ok {
			ids[key] = len(ids)
		}
		out[i] = shapeKind{ids[key], logFloor(sh.ratio, 1.6), logFloor(k.special(sh.room)/sh.room[0], 1.6)}
	}
	return out
}

// thinned keeps, of shapes of one kind that cost within a factor of each other, the one that has most for its price.
func (k *packer) thinned(kinds []shapeKind, step float64) []*shape {
	type class struct {
		shapeKind

		size float64
	}
	best := map[class]*shape{}
	classes := make([]class, len(kinds))
	for i, sh := range k.allShapes {
		classes[i] = class{kinds[i], logFloor(sh.cost, step)}
		if o := best[classes[i]]; o == nil || k.bulk(sh.room)/sh.cost > k.bulk(o.room)/o.cost {
			best[classes[i]] = sh
		}
	}
	var out []*shape
	for i, sh := range k.allShapes {
		if best[classes[i]] == sh {
			out = append(out, sh)
		}
	}
	return out
}

func (k *packer) shapesOf(p *pool) []*shape {
	patience := 1.0 // how much dearer than one node for everything a node can be that is liked better
	for n, w := range k.wishes {
		if n > 0 {
			patience = max(patience, 1+w.most())
		}
	}
	seen := map[int]bool{}
	done := map[*mask]bool{}
	var out []*shape
	for _, masks := range k.sets {
		m := masks[p.index]
		if m == nil || done[m.wide] {
			continue
		}
		done[m.wide] = true
		for _, m := range k.wished(p, m.wide) {
			for _, o := range p.best(m) {
				if p.Catalog.Offerings[o].Price > k.ceiling {
					break // as all that follow are
				}
				if seen[o] {
					continue
				}
				seen[o] = true
				if sh := k.shapeOf(p, o); sh != nil {
					out = append(out, sh)
					if sh.reservation() == "" && k.holdsAll(sh) && k.affords(sh) {
						k.ceiling = min(k.ceiling, sh.cost*patience)
					}
				}
			}
		}
	}
	return out
}

// wished are the mask itself and the parts of it that meet terms of wishes.
func (k *packer) wished(p *pool, m *mask) []*mask {
	out := []*mask{m}
	for n, w := range k.wishes {
		if n == 0 {
			continue
		}
		for _, met := range w.met[p.index] {
			if part := p.intern(m.set.And(met)); !part.set.Empty() && !slices.Contains(out, part) {
				out = append(out, part)
			}
		}
	}
	return out
}

// shapeOf is the shape of an offering, nil if no set has it.
func (k *packer) shapeOf(p *pool, o int) *shape {
	sh := &shape{pool: p, offering: o, kind: p.Catalog.TypeOf(o), price: p.Catalog.Offerings[o].Price, accepts: make([]uint64, (len(k.sets)+63)/64)}
	accepted := false
	for i, masks := range k.sets {
		if m := masks[p.index]; m != nil && m.set.Has(o) {
			sh.accepts[i/64] |= 1 << (i % 64)
			accepted = true
		}
	}
	if !accepted {
		return nil
	}
	sh.room = k.vector(p.free[sh.kind], manyVolumes)
	if !k.roomFor(sh) {
		return nil
	}
	for n, w := range k.wishes {
		sh.unmet = append(sh.unmet, 0)
		if n > 0 {
			sh.unmet[n] = w.unmet(p, o)
		}
	}
	sh.cost = k.costOf(sh)
	sh.ratio = sh.room[1] / max(sh.room[0], 1)
	return sh
}

// manyVolumes stands for no limit on volumes.
const manyVolumes = 1e6

// beats reports whether a shape, which costs no more than o, is at least as good in everything. Room for more than all there
// is to pack is no merit; and a shape that may be bought only so often, or not at all, beats only others like it.
func (k *packer) beats(sh, o *shape) bool {
	for d, v := range o.room {
		if sh.room[d] < min(v, k.total[d]) {
			return false
		}
	}
	for i, w := range o.accepts {
		if w&^sh.accepts[i] != 0 {
			return false
		}
	}
	for n, v := range o.unmet {
		if sh.unmet[n] > v {
			return false
		}
	}
	return sh.reservation() == o.reservation() && (k.affords(sh) || !k.affords(o))
}

// holdsAll reports whether one node of the shape has room for everything there is to pack.
func (k *packer) holdsAll(sh *shape) bool {
	for i := range k.sets {
		if !sh.takes(i) {
			return false
		}
	}
	return fits(k.total, sh.room)
}

// logFloor is the largest power of step that is not above v.
func logFloor(v, step float64) float64 {
	return math.Pow(step, math.Floor(math.Log(v)/math.Log(step)+1e-9))
}
