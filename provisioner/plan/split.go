// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// item is a share of a demand that may go to new nodes of certain domains.
type item struct {
	d  *demand
	at spot
	// pods and their steps, in the order they were dealt. Packing works with their number; left are those not in a bin.
	pods  []*capacity.Pod
	steps []int
	left  int
	// cap is what an earlier round learned the item may get at most.
	cap *domainCap
	// masks are, a pool, the offerings that will do: the class's own, narrowed to the domains. Nil where the pool cannot be used.
	masks []*mask
	// custom are, a pool, what the item asks of labels the pool leaves open.
	custom    []capacity.Requirements
	customKey string

	row *row

	why       Reason
	whyPool   string
	whyDetail string
}

// anywhere is an item that may go wherever its class may.
func (s *solver) anywhere(d *demand) *item {
	it := &item{d: d, pods: d.pods, masks: make([]*mask, len(s.pools)), custom: make([]capacity.Requirements, len(s.pools))}
	for i, f := range d.pools {
		if f.ok {
			it.masks[i], it.custom[i] = f.mask, f.custom
			it.customKey += f.customKey
		}
	}
	return it
}

// split gives the demands' pods their domains. A class without zone-like rules is one item that may go anywhere. A class
// with them is dealt out pod by pod, the least loaded allowed domain first, before anything is packed: so each new node can
// hold all pods of its zone, and the final counts satisfy the rules. Pods that have to be near others are dealt again after
// those.
func (s *solver) split(demands []*demand) []*item {
	var out []*item
	for first, again := true, true; again; first = false {
		again = false
		waiting := false
		for _, d := range demands {
			if first && len(d.pods) > 0 && len(d.keys) > 0 {
				d.choices = s.choices(d, d.keys)
			}
			switch {
			case len(d.pods) == 0:
			case len(d.keys) == 0:
				d.choices = []*item{s.whole(d)}
			default:
				again = s.deal(d) || again
				waiting = waiting || (len(d.pods) > 0 && d.follows())
			}
		}
		again = again && waiting
	}
	for _, d := range demands {
		if len(d.pods) > 0 {
			s.stuck = append(s.stuck, s.leftOver(d, d.choices))
		}
		for _, it := range d.choices {
			if it.left > 0 {
				out = append(out, it)
			}
		}
		d.choices = nil
	}
	return out
}

// whole is all pods of a demand that may go anywhere, as one item.
func (s *solver) whole(d *demand) *item {
	it := s.anywhere(d)
	for range d.pods {
		it.steps = append(it.steps, s.step)
		s.step++
	}
	it.left, d.pods = len(d.pods), nil
	return it
}

// deal gives the demand's pods domains for as long as one is allowed; false if none is.
func (s *solver) deal(d *demand) bool {
	before := len(d.pods)
	for len(d.pods) > 0 {
		best := -1
		for i, c := range d.choices {
			if c.cap != nil && c.left >= c.cap.most {
				continue
			}
			if d.allowed(c.at) && (best < 0 || d.load(c.at) < d.load(d.choices[best].at)) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		it := d.choices[best]
		it.pods, it.steps, it.left = append(it.pods, d.pods[0]), append(it.steps, s.step), it.left+1
		s.step++
		d.pods = d.pods[1:]
		d.record(it.at, 1)
	}
	return len(d.pods) < before
}

// leftOver says why pods of a demand got no domain: a domain that took no more, if there is one, else the rules themselves.
func (s *solver) leftOver(d *demand, choices []*item) stuck {
	out := stuck{d: d, pods: d.pods}
	if len(choices) > 0 {
		out.why = TopologyBlocks
	}
	for _, c := range choices {
		if c.cap != nil && c.cap.why != "" {
			out.why, out.pool, out.detail = c.cap.why, c.cap.pool, c.cap.detail
			break
		}
	}
	return out
}

// maxChoices bounds the combinations of domains that are looked at for one class, so that a class with many topology
// keys costs bounded time; real clusters have 3 to 12.
const maxChoices = 256

// choices lists the combinations of domains in which some pool can make a node for the demand: those of heavier pools
// first, then those with the cheaper offering.
func (s *solver) choices(d *demand, keys []string) []*item {
	values := make([][]string, len(keys))
	for k, key := range keys {
		seen := map[string]bool{}
		for i, f := range d.pools {
			if !f.ok {
				continue
			}
			candidates := s.valuesOf(s.pools[i], key, f)
			if !d.bound(key) && s.pools[i].mayLack(key, f) {
				candidates = append([]string{noDomain}, candidates...)
			}
			for _, v := range candidates {
				if !seen[v] {
					seen[v] = true
					values[k] = append(values[k], v)
				}
			}
		}
		slices.Sort(values[k])
	}
	var out []*item
	at := make([]int, len(keys))
	for len(out) < maxChoices {
		p := spot{}
		for k, key := range keys {
			if len(values[k]) == 0 {
				return nil
			}
			p[key] = values[k][at[k]]
		}
		if it := s.itemAt(d, p); it != nil {
			out = append(out, it)
		}
		if !next(at, values) {
			break
		}
	}
	slices.SortStableFunc(out, func(a, b *item) int { return s.compareItems(a, b) })
	return out
}

func next(at []int, values [][]string) bool {
	for k := len(at) - 1; k >= 0; k-- {
		if at[k]++; at[k] < len(values[k]) {
			return true
		}
		at[k] = 0
	}
	return false
}

// compareItems orders by the first pool that can serve, then by its cheapest price.
func (s *solver) compareItems(a, b *item) int {
	for i, p := range s.pools {
		switch x, y := a.masks[i], b.masks[i]; {
		case x == nil && y == nil:
			continue
		case y == nil:
			return -1
		case x == nil:
			return 1
		default:
			return cmp.Compare(p.Catalog.Offerings[x.set.First()].Price, p.Catalog.Offerings[y.set.First()].Price)
		}
	}
	return 0
}

// itemAt is the item for one choice of domains, nil if no pool can make such a node.
func (s *solver) itemAt(d *demand, p spot) *item {
	key := p.key()
	it := &item{d: d, at: p, masks: make([]*mask, len(s.pools)), custom: make([]capacity.Requirements, len(s.pools))}
	if c, ok := s.caps[capKey(d, key)]; ok {
		it.cap = &c
	}
	found := false
	for i, f := range d.pools {
		if !f.ok {
			continue
		}
		custom, ok := s.pools[i].customAt(p, f)
		if !ok {
			continue
		}
		if m := s.pools[i].at(f.mask, p, key); !m.set.Empty() {
			it.masks[i], it.custom[i], found = m, custom, true
			if len(custom) > 0 {
				it.customKey += spell(custom)
			}
		}
	}
	if !found {
		return nil
	}
	return it
}

// customAt narrows what a fit asks of labels the pool leaves open to the domains; false if the pool has no such label.
func (q *pool) customAt(p spot, f fit) (capacity.Requirements, bool) {
	custom := f.custom
	for key, v := range p {
		if q.Catalog.Defines(key) {
			continue
		}
		have, ok := q.Requirements[key]
		if r, narrowed := custom[key]; narrowed {
			have = r
		}
		switch {
		case v == noDomain && !ok:
		case v == noDomain && have.AllowsAbsent():
			custom = custom.With(capacity.DoesNotExist(key))
		case v == noDomain || !ok || !have.Has(v):
			return nil, false
		default:
			custom = custom.With(capacity.In(key, v))
		}
	}
	return custom, true
}
