// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"
)

// maxPieces bounds the rows that are looked at to fill up one node.
const maxPieces = 150

// piecesFor are the rows to fill a node with: all that have pods or, of too many, some of every size.
func (k *packer) piecesFor(seed *row, rows []*row) []*piece {
	var out []*piece
	for _, r := range rows {
		if r.left > 0 {
			out = append(out, &r.piece)
		}
	}
	if n := len(out); n > maxPieces {
		few := []*piece{&seed.piece}
		for i := range maxPieces {
			if p := out[i*n/maxPieces]; p != &seed.piece {
				few = append(few, p)
			}
		}
		out = few
	}
	return out
}

// candidate is a shape with its worth per dollar, or a bound on it.
type candidate struct {
	sh *shape
	e  float64
}

// bestShape is the shape whose filling around a pod of the seed is worth most per dollar. Pods that have to share a host with
// each other, whatever rows they are of, get the one that holds most of them: what does not go into this node goes nowhere.
func (k *packer) bestShape(seed *row, pieces []*piece) (*shape, []pieceTake) {
	var best *shape
	var bestTakes []pieceTake
	top, most := 0.0, 0
	clings := seed.clings()
	var tried []candidate
	for _, c := range k.promising(seed, pieces) {
		floor := top * c.sh.cost
		if clings {
			floor = 0
		} else if c.e <= top {
			break
		}
		takes, value := k.fill.fill(c.sh, pieces, &seed.piece, floor, rowEffort)
		e := value / c.sh.cost
		tried = append(tried, candidate{c.sh, e})
		held := 0
		for _, t := range takes {
			if t.p == &seed.piece || (clings && k.rows[t.p.index].near() == seed.near()) {
				held += t.n
			}
		}
		if better := e > top*(1+1e-9); (clings && held > most) || (better && (!clings || held == most)) {
			best, bestTakes, top, most = c.sh, takes, e, held
		}
	}
	if _, known := k.favours[seed.set]; !known && !clings {
		slices.SortStableFunc(tried, func(a, b candidate) int { return cmp.Compare(b.e, a.e) })
		for _, c := range tried[:min(len(tried), maxFavours)] {
			k.favours[seed.set] = append(k.favours[seed.set], c.sh)
		}
	}
	return best, bestTakes
}

// promising lists the shapes that can hold a pod of the seed by a bound on what they can be worth per dollar, highest first.
func (k *packer) promising(seed *row, pieces []*piece) []candidate {
	everything, most := 0.0, 0.0
	for _, p := range pieces {
		most = max(most, p.value/k.bulk(p.size))
		everything += p.value * float64(p.left)
	}
	var list []candidate
	for _, sh := range k.candidates(seed, len(pieces)) {
		if !sh.takes(seed.set) || !fits(seed.size, sh.room) {
			continue
		}
		if !k.affords(sh) {
			k.tight = true
			for _, it := range seed.items {
				it.blocked(LimitReached, sh.pool.Name, k.whyNot(sh))
			}
			continue
		}
		list = append(list, candidate{sh, min(everything, most*k.bulk(sh.room)) / sh.cost})
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return cmp.Compare(b.e, a.e) })
	return list
}

const rowEffort = 30

// Where there is much to choose from, the shapes that were best lately are believed to stay the best for some nodes.
const (
	maxFavours = 4
	favourFor  = 32
)

// candidates are the shapes to try for a row.
func (k *packer) candidates(seed *row, pieces int) []*shape {
	if k.opened++; k.opened%favourFor == 0 || pieces < maxPieces/2 {
		clear(k.favours)
	}
	fav := k.favours[seed.set]
	if len(fav) == 0 || seed.clings() || slices.ContainsFunc(fav, func(sh *shape) bool { return !fits(seed.size, sh.room) || !k.affords(sh) }) {
		delete(k.favours, seed.set)
		return k.shapes
	}
	return fav
}

func fits(size, room []float64) bool {
	for d, v := range size {
		if v > room[d] {
			return false
		}
	}
	return true
}
