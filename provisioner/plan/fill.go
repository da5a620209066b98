// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
)

// filler fills a bin on trial. Hosts are counted under a name of the trial's own and taken back at its end.
type filler struct {
	k      *packer
	bin    bin
	counts []take
	open   []*lot
}

// try puts one pod of the seed into the offering and then, again and again, a pod of the lot that matches the room left
// best: the one whose request is most nearly proportional to it, larger ones first.
func (f *filler) try(index, offering int, seed *item) shape {
	p := f.k.s.pools[index]
	f.bin = bin{id: f.bin.id, pool: p, index: index, chosen: offering, free: p.free[p.Catalog.TypeOf(offering)]}
	f.counts = f.counts[:0]
	sh := shape{index: index, offering: offering, price: p.Catalog.Offerings[offering].Price}
	if !f.add(seed) {
		return sh
	}
	f.open = append(f.open[:0], f.k.lots...)
	for {
		l := f.next()
		if l == nil {
			break
		}
		if !f.addFrom(l) {
			f.open = slices.DeleteFunc(f.open, func(o *lot) bool { return o == l })
		}
	}
	for _, c := range f.counts {
		sh.value += c.it.lot.value * float64(c.n)
		c.it.trial = 0
		c.it.d.recordHost(f.bin.id, -c.n)
	}
	sh.counts = slices.Clone(f.counts)
	return sh
}

// next is the lot that suits the room left best; lots that do not fit any more leave the trial.
func (f *filler) next() *lot {
	fc, fm := float64(f.bin.free.CPU)/1000, float64(f.bin.free.Memory)/(4<<30)
	ff := fc*fc + fm*fm
	var best *lot
	score := -1.0
	kept := f.open[:0]
	for _, l := range f.open {
		if l.left == 0 || !l.requests.Fits(f.bin.free) {
			continue
		}
		kept = append(kept, l)
		if s := suits(l.cpu, l.mem, fc, fm, ff); s > score {
			best, score = l, s
		}
	}
	f.open = kept
	return best
}

// suits is the squared cosine between a request and the free room in CPU and memory, weighted a little by size so that of
// equal directions the larger pod goes first.
func suits(rc, rm, fc, fm, ff float64) float64 {
	rr := rc*rc + rm*rm
	if rr == 0 || ff == 0 {
		return 0
	}
	dot := rc*fc + rm*fm
	return dot*dot/(rr*ff) + rr/ff*0.2
}

// addFrom adds one pod of the lot; false if none of its items may join.
func (f *filler) addFrom(l *lot) bool {
	return slices.ContainsFunc(l.items, f.add)
}

func (f *filler) add(it *item) bool {
	if it.trial >= len(it.pods) || f.bin.room(it, len(it.pods)-it.trial) == 0 {
		return false
	}
	it.trial++
	f.bin.take(it, 1)
	for i := len(f.counts) - 1; i >= 0; i-- {
		if f.counts[i].it == it {
			f.counts[i].n++
			return true
		}
	}
	f.counts = append(f.counts, take{it: it, n: 1})
	return true
}
