// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// softRule is a topology rule that should hold and need not: ScheduleAnyway spread, preferred pod affinity and anti-affinity.
// Where it does not hold a pod counts dearer by its weight, in parts of what the pod's room costs.
type softRule struct {
	rule
	weight float64
}

// spreadWeight is what a ScheduleAnyway constraint weighs, in parts: Kubernetes gives it no weight of its own.
const spreadWeight = 0.1

// unmet is the rule's weight if it does not hold for one more pod where n pods are counted, else 0. least is the smallest count
// of any domain.
func (r *softRule) unmet(n, least int) float64 {
	holds := n > 0
	switch r.kind {
	case anti:
		holds = n == 0
	case spread:
		if r.self {
			n++
		}
		holds = n-least <= r.maxSkew
	case affinity:
	}
	if holds {
		return 0
	}
	return r.weight
}

// preferences sets up the demands' soft rules and counts the pods of the view for them. They have counters of their own: being
// counted for somebody's preference binds nobody.
func (s *solver) preferences() {
	if !slices.ContainsFunc(s.demands, func(d *demand) bool { return d.class.HasSoftRules() }) {
		return
	}
	cs, there := newCounters(), domainsOf(s.nodes)
	for _, d := range s.demands {
		c := d.class
		for _, sp := range c.SoftSpread {
			r := &softRule{weight: spreadWeight, rule: rule{
				kind: spread, key: sp.Key, counter: s.spreadCounter(cs, d, sp), self: sp.Matches(c.Namespace, c), maxSkew: sp.MaxSkew, minDom: sp.MinDomains, over: sp,
			}}
			there.set(d, &r.rule)
			s.addPossible(d, &r.rule)
			d.soft = append(d.soft, r)
		}
		near := func(kind ruleKind, terms []capacity.WeightedTerm) {
			for _, t := range terms {
				ct := cs.get("t\x00"+t.ID, t.Key, t.Selector, t.Matches)
				d.soft = append(d.soft, &softRule{weight: float64(t.Weight) / 100, rule: rule{kind: kind, key: t.Key, counter: ct, self: t.Matches(c)}})
			}
		}
		near(affinity, c.PreferredAffinity)
		near(anti, c.PreferredAntiAffinity)
	}
	for _, n := range s.nodes {
		cs.count(n)
	}
	for _, d := range s.demands {
		d.softCounted = cs.of(d.class)
	}
}

// picky reports whether the demand's pods like some nodes of the view better than others.
func (d *demand) picky() bool {
	return len(d.soft) > 0 || len(d.class.Preferred) > 0
}

// dislike is what a node of the view leaves to be desired for one more pod of the demand, in parts.
func (d *demand) dislike(n *node) float64 {
	sum := avoidWeight * float64(d.class.Avoids(n.Taints))
	for _, p := range d.class.Preferred {
		if !n.Meets(p.Requirements) {
			sum += float64(p.Weight) / 100
		}
	}
	for _, r := range d.soft {
		switch dom, ok := n.domain(r.key); {
		case r.aboutHosts():
			sum += r.unmet(r.counter.hosts[n.host], 0)
		case ok:
			sum += r.unmet(r.counter.counts[dom], r.least())
		case r.kind != anti:
			sum += r.weight
		}
	}
	return sum
}

// placeInDomains chooses one domain for each node whose pods would like some better: the one whose price and dislikes are least in
// sum. It moves no pod and adds no node; where pods do not care, EC2 chooses.
func (s *solver) placeInDomains() {
	bins := map[*demand]int{}
	for _, b := range s.bins {
		for _, t := range b.takes {
			if len(t.it.d.soft) > 0 {
				bins[t.it.d]++
			}
		}
	}
	for _, b := range s.bins {
		for _, key := range b.softKeys() {
			if v, ok := b.bestDomain(key, bins); ok {
				b.pins = append(b.pins, pin{key, v})
			}
		}
		b.countSoft()
	}
}

// pin is a label value chosen for a node.
type pin struct{ key, value string }

// softKeys are the topology keys, host names apart, of which some pod of the bin would like a domain better than another.
func (b *bin) softKeys() []string {
	var out []string
	if b.pool.minValues {
		return nil // its launches have to stay flexible
	}
	for _, t := range b.takes {
		for _, r := range t.it.d.soft {
			if !r.aboutHosts() && b.pool.Catalog.Defines(r.key) && !slices.Contains(out, r.key) {
				out = append(out, r.key)
			}
		}
	}
	slices.Sort(out)
	return out
}

// offered is what the bin may be bought as.
func (b *bin) offered() *mask {
	m := b.pool.product(b.liked(b.pool.pinned(b.mask(), b.chosen)), b.chosen)
	for _, p := range b.pins {
		m = b.pool.at(m, spot{p.key: p.value}, p.key+"="+p.value)
	}
	return m
}

// bestDomain is the domain of the key in which the bin's price and the dislikes of its pods are least in sum; false if they do
// not care. Pods that look at others of their own kind care where the first of several bins is.
func (b *bin) bestDomain(key string, bins map[*demand]int) (string, bool) {
	m := b.offered()
	room := b.requests()
	total := float64(max(size(room), 1))
	best, least, differ, first := "", 0.0, false, 0.0
	for _, v := range b.pool.valuesIn(key, m) {
		at := b.pool.holding(b.pool.at(m, spot{key: v}, key+"="+v), room)
		if !at.set.Intersects(b.pool.Catalog.WithValue(corev1.LabelInstanceTypeStable, b.pool.Catalog.Offerings[b.chosen].Type.Name)) {
			continue // another type may be too large for the pool's limits
		}
		price := max(b.pool.Catalog.Offerings[at.set.First()].Price, minPrice)
		dislike := 0.0
		for _, t := range b.takes {
			share := float64(t.n) * float64(size(t.it.d.class.Requests)) / total
			for _, r := range t.it.d.soft {
				if r.key == key {
					dislike += share * r.unmet(r.counter.counts[v], r.least())
					differ = differ || (r.self && bins[t.it.d] > 1)
				}
			}
		}
		if best == "" {
			first = dislike
		}
		differ = differ || dislike != first
		if cost := price * (1 + dislike); best == "" || cost < least*(1-1e-9) {
			best, least = v, cost
		}
	}
	return best, differ && best != ""
}

// countSoft counts the bin's pods for soft rules in the domains it is sure to be in.
func (b *bin) countSoft() {
	if len(b.pins) == 0 && !slices.ContainsFunc(b.takes, func(t take) bool { return len(t.it.d.softCounted) > 0 }) {
		return
	}
	m := b.offered()
	for _, t := range b.takes {
		for _, c := range t.it.d.softCounted {
			if c.hosts != nil || !b.pool.Catalog.Defines(c.key) {
				continue
			}
			if values := b.pool.valuesIn(c.key, m); len(values) == 1 {
				c.add(values[0], t.n)
			}
		}
	}
}

// maxLevelled bounds the pods that are moved for the sake of evenness.
const maxLevelled = 1000

// level moves pods that would like to be spread over nodes from the bin with most of them to the one with fewest that has
// room, for as long as that evens them out. No bin is added or exchanged.
func (s *solver) level(items []*item) {
	moved := 0
	for _, it := range items {
		if !slices.ContainsFunc(it.d.soft, func(r *softRule) bool { return r.aboutHosts() && r.self && r.kind != affinity }) || it.d.hosts.near() != nil {
			continue
		}
		for moved < maxLevelled && s.levelOne(it) {
			moved++
		}
	}
}

// levelOne moves one pod of the item; false if that evens nothing out.
func (s *solver) levelOne(it *item) bool {
	var from, to *bin
	most, fewest := 0, unlimited
	for _, b := range s.bins {
		n := 0
		for _, t := range b.takes {
			if t.it.d == it.d {
				n += t.n
			}
		}
		if n > most && b.has(it) {
			from, most = b, n
		}
		if n < fewest && b.room(it, 1) > 0 {
			to, fewest = b, n
		}
	}
	if from == nil || to == nil || most-fewest < 2 {
		return false
	}
	from.remove(it)
	to.put(it, 1)
	return true
}

func (b *bin) has(it *item) bool {
	return slices.ContainsFunc(b.takes, func(t take) bool { return t.it == it && t.n > 0 })
}

// remove takes one pod of the item out of the bin.
func (b *bin) remove(it *item) {
	held := b.clear()
	for _, t := range held {
		if t.it == it {
			t.n--
		}
		if t.n > 0 {
			b.put(t.it, t.n)
		}
	}
}
