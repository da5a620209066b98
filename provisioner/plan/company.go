// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"math"
	"slices"
)

// near is the counter of the pods that pods of the row have to share a host with, nil if they need no company.
func (r *row) near() *counter {
	if r.hosts == nil {
		return nil
	}
	return r.hosts.near()
}

func (h *hostRules) near() *counter {
	for _, q := range h.rules {
		if q.kind == affinity && !q.daemons {
			return q.counter
		}
	}
	return nil
}

// byCompany places the rows whose pods have to share a host with others: on a node that has such others and room; on a node
// of their own, if they are company to themselves; or on a new node together with the first of the others. As one row may
// wait for another, it goes on for as long as any gets a place.
func (k *packer) byCompany() {
	var rows []*row
	for _, r := range k.rows {
		if r.near() != nil {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return
	}
	slices.SortStableFunc(rows, func(a, b *row) int { return cmp.Compare(k.bulk(b.size), k.bulk(a.size)) })
	k.worthless()
	first := len(k.s.bins)
	for again := true; again; {
		again = false
		for _, r := range rows {
			before := r.left
			k.join(r)
			for r.left > 0 && k.openFor(r, k.rows) {
				k.join(r)
			}
			for ok := true; ok && r.left > 0; {
				ok = k.openWith(r)
			}
			again = again || r.left < before
		}
	}
	for _, b := range k.s.bins[first:] { // only now: those that are company must not be used up before
		k.topUp(b)
	}
	for _, r := range k.rows {
		r.value = 0
	}
}

// join puts pods of the row on nodes that have company for them.
func (k *packer) join(r *row) {
	for _, it := range r.items {
		if it.left > 0 {
			k.s.fillBins(it)
		}
	}
}

// openWith opens a node for one pod of another row and as many of this one, to which it is company, as go with it; false if
// there is none.
func (k *packer) openWith(r *row) bool {
	var best *shape
	var partner *row
	most, per, enough := 0, math.Inf(1), false
	for _, p := range k.rows {
		if p == r || p.left == 0 || p.hosts == nil || !slices.Contains(p.hosts.counted, r.near()) || p.hosts.room(trialHost) == 0 {
			continue
		}
		need := (r.left + p.left - 1) / p.left
		for _, sh := range k.shapes {
			n := k.together(sh, p, r)
			if n == 0 || !k.affords(sh) {
				continue
			}
			reach, price := n >= need, sh.cost/float64(min(n, max(need, 1)))
			if (reach && !enough) || (reach == enough && ((reach && price < per) || (!reach && n > most))) {
				best, partner, most, per, enough = sh, p, n, price, reach
			}
		}
	}
	if best == nil {
		return false
	}
	b := k.open(best)
	if partner.give(b, 1) == 0 || r.give(b, most) == 0 {
		b.clear()
		k.s.drop(b)
		return false
	}
	return true
}

// together is how many pods of a row a shape holds beside one of its partner.
func (k *packer) together(sh *shape, partner, r *row) int {
	if !sh.takes(partner.set) || !sh.takes(r.set) || portsClash(partner.ports, r.ports) || (partner.custom != 0 && r.custom != 0 && partner.custom != r.custom) {
		return 0
	}
	n := r.left
	if len(r.ports) > 0 {
		n = 1
	}
	for d, v := range r.size {
		room := sh.room[d] - partner.size[d]
		if room < 0 {
			return 0
		}
		if v > 0 {
			n = min(n, int(room/v))
		}
	}
	partner.hosts.record(trialHost, 1)
	n = min(n, r.hosts.room(trialHost))
	partner.hosts.record(trialHost, -1)
	return max(n, 0)
}
