// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// counter counts pods that a selector matches (or that own an anti-affinity term), by domain of one topology key.
// A domain is a label value; for kubernetes.io/hostname it is the ID of a node or new node.
type counter struct {
	key    string
	match  func(*capacity.Class) bool
	counts map[string]int
	total  int
}

func (c *counter) add(domain string, n int) {
	c.counts[domain] += n
	c.total += n
}

// rule is one topology constraint of a class, or an anti-affinity term of other pods that the class runs into.
type rule struct {
	kind    ruleKind
	key     string
	counter *counter
	self    bool // the class's own pods are counted
	maxSkew int
	minDom  int
	domains map[string]bool // spread: the domains that count
}

type ruleKind int

const (
	spread ruleKind = iota
	affinity
	anti
)

// allows reports whether one more pod may go to the domain.
func (r *rule) allows(domain string) bool {
	n := r.counter.counts[domain]
	switch r.kind {
	case affinity:
		return n > 0 || (r.self && r.counter.total == 0)
	case anti:
		return n == 0
	default:
		if r.self {
			n++
		}
		return n-r.least() <= r.maxSkew
	}
}

// room is how many more pods of the class the domain may take right now; only meaningful for hostname rules, whose
// least loaded domain is always an empty new node.
func (r *rule) room(domain string) int {
	n := r.counter.counts[domain]
	switch {
	case !r.allows(domain):
		return 0
	case r.kind == spread && r.self:
		return r.maxSkew - n
	case r.kind == anti && r.self:
		return 1
	default:
		return int(^uint(0) >> 1)
	}
}

// least is the smallest count over the domains that matter; 0 for host names, since a new node is always possible, and
// while there are fewer domains than minDomains.
func (r *rule) least() int {
	if r.key == corev1.LabelHostname || len(r.domains) < r.minDom || len(r.domains) == 0 {
		return 0
	}
	least := int(^uint(0) >> 1)
	for d := range r.domains {
		least = min(least, r.counter.counts[d])
	}
	return least
}

// topology builds the counters and rules that the demanded classes need and fills in the pods of the view.
func (s *solver) topology() {
	counters := map[string]*counter{}
	get := func(id, key string, match func(*capacity.Class) bool) *counter {
		id = key + "\x00" + id
		c := counters[id]
		if c == nil {
			c = &counter{key: key, match: match, counts: map[string]int{}}
			counters[id] = c
			s.counters = append(s.counters, c)
		}
		return c
	}
	for _, d := range s.demands {
		c := d.class
		for _, sp := range c.Spread {
			ct := get("s\x00"+c.Namespace+"\x00"+sp.Selector.String(), sp.Key, func(o *capacity.Class) bool { return sp.Matches(c.Namespace, o) })
			d.rules = append(d.rules, &rule{kind: spread, key: sp.Key, counter: ct, self: sp.Matches(c.Namespace, c), maxSkew: sp.MaxSkew, minDom: sp.MinDomains, domains: s.domains(d, sp)})
		}
		for _, t := range c.Affinity {
			d.rules = append(d.rules, &rule{kind: affinity, key: t.Key, counter: get("t\x00"+t.ID, t.Key, t.Matches), self: t.Matches(c)})
		}
		for _, t := range c.AntiAffinity {
			d.rules = append(d.rules, &rule{kind: anti, key: t.Key, counter: get("t\x00"+t.ID, t.Key, t.Matches), self: t.Matches(c)})
		}
	}
	s.inverse(get)
	for _, n := range s.nodes {
		for c, k := range n.Pods {
			for _, ct := range s.counters {
				if ct.match(c) {
					if dom, ok := n.domain(ct.key); ok {
						ct.add(dom, k)
					}
				}
			}
		}
	}
	for _, d := range s.demands {
		for _, ct := range s.counters {
			if ct.match(d.class) {
				d.counted = append(d.counted, ct)
			}
		}
		d.settle()
	}
}

// inverse adds a rule to every class that an anti-affinity term of another pod, placed or demanded, selects: where that
// pod is, the class may not go. Owners of equal terms are counted together.
func (s *solver) inverse(get func(id, key string, match func(*capacity.Class) bool) *counter) {
	owners := map[string]map[*capacity.Class]bool{}
	terms := map[string]capacity.PodTerm{}
	note := func(c *capacity.Class) {
		for _, t := range c.AntiAffinity {
			id := t.Key + "\x00" + t.ID
			if owners[id] == nil {
				owners[id], terms[id] = map[*capacity.Class]bool{}, t
			}
			owners[id][c] = true
		}
	}
	for _, n := range s.nodes {
		for c := range n.Pods {
			note(c)
		}
	}
	for _, d := range s.demands {
		note(d.class)
	}
	ids := make([]string, 0, len(terms))
	for id := range terms {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		t, own := terms[id], owners[id]
		for _, d := range s.demands {
			if t.Matches(d.class) {
				ct := get("o\x00"+t.ID, t.Key, func(o *capacity.Class) bool { return own[o] })
				d.rules = append(d.rules, &rule{kind: anti, key: t.Key, counter: ct, self: own[d.class]})
			}
		}
	}
}

// domains are the values of a spread's key that count for the class: those of nodes its policies admit and those a new
// node of a pool it fits could have. Nil for host names.
func (s *solver) domains(d *demand, sp capacity.Spread) map[string]bool {
	if sp.Key == corev1.LabelHostname {
		return nil
	}
	out := map[string]bool{}
	for _, n := range s.nodes {
		if n.Phase == capacity.Leaving {
			continue
		}
		v, ok := n.domain(sp.Key)
		if !ok || v == "" {
			continue
		}
		if sp.HonorAffinity && !n.Satisfies(d.class.NodeTerms) {
			continue
		}
		if _, ok := d.class.Tolerates(n.Taints); sp.HonorTaints && !ok {
			continue
		}
		out[v] = true
	}
	for i, f := range d.pools {
		if f.ok {
			for _, v := range s.pools[i].valuesOf(sp.Key, f) {
				out[v] = true
			}
		}
	}
	return out
}

// valuesOf lists the values of a label key that a new node of the pool could have for a class.
func (q *pool) valuesOf(key string, f fit) []string {
	if q.Catalog.Defines(key) {
		return q.Catalog.Values(key, f.mask)
	}
	r, ok := f.custom[key]
	if !ok {
		r, ok = q.Requirements[key]
	}
	if ok && r.Finite() {
		return r.Values()
	}
	return nil
}

// spot is a choice of one domain for each topology key a class is concerned with, host names apart.
type spot map[string]string

func (p spot) key() string {
	keys := make([]string, 0, len(p))
	for k := range p {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var b strings.Builder
	for _, k := range keys {
		b.WriteString(k + "=" + p[k] + ";")
	}
	return b.String()
}

// hostRules are the rules and counters of a demand whose domains are hosts.
type hostRules struct {
	rules   []*rule
	counted []*counter
}

// settle derives what placing needs again and again: the topology keys, host names apart, that bind the demand or on which
// it is counted, and its rules about hosts.
func (d *demand) settle() {
	for _, r := range d.rules {
		if r.key == corev1.LabelHostname {
			d.hosts.rules = append(d.hosts.rules, r)
		} else {
			d.keys = append(d.keys, r.key)
		}
	}
	for _, c := range d.counted {
		if c.key == corev1.LabelHostname {
			d.hosts.counted = append(d.hosts.counted, c)
		} else {
			d.keys = append(d.keys, c.key)
		}
	}
	slices.Sort(d.keys)
	d.keys = slices.Compact(d.keys)
}

// allowed reports whether the class may go to these domains.
func (d *demand) allowed(p spot) bool {
	for _, r := range d.rules {
		if r.key == corev1.LabelHostname {
			continue
		}
		dom, ok := p[r.key]
		if !ok || !r.allows(dom) {
			return false
		}
	}
	return true
}

// hostRoom is how many pods of the class may join those already on a host.
func (d *demand) hostRoom(host string) int {
	n := int(^uint(0) >> 1)
	for _, r := range d.hosts.rules {
		n = min(n, r.room(host))
	}
	return n
}

// load is how crowded the domains are for the class: the sum of its spread counters.
func (d *demand) load(p spot) int {
	n := 0
	for _, r := range d.rules {
		if r.kind == spread && r.key != corev1.LabelHostname {
			n += r.counter.counts[p[r.key]]
		}
	}
	return n
}

// record counts n pods of the class at the domains, or takes them back for negative n.
func (d *demand) record(p spot, n int) {
	for _, c := range d.counted {
		if dom, ok := p[c.key]; ok {
			c.add(dom, n)
		}
	}
}

// recordHost counts n pods of the class on a host, or takes them back for negative n.
func (d *demand) recordHost(host string, n int) {
	for _, c := range d.hosts.counted {
		c.add(host, n)
	}
}
