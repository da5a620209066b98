// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// counters are all counters of a plan, found by what they count.
type counters struct {
	byID map[string]*counter
	// Selectors that want one label value are found by it; the rest is looked through.
	byLabel map[string][]*counter
	rest    []*counter
	byOwner map[*capacity.Class][]*counter
	memo    map[*capacity.Class][]*counter
}

func newCounters() *counters {
	return &counters{byID: map[string]*counter{}, byLabel: map[string][]*counter{}, byOwner: map[*capacity.Class][]*counter{}, memo: map[*capacity.Class][]*counter{}}
}

// get returns the counter of that id and key, made if it is not there yet. match is what it counts; sel selects no less.
func (cs *counters) get(id, key string, sel labels.Selector, match func(*capacity.Class) bool) *counter {
	c, made := cs.named(id, key)
	if !made {
		return c
	}
	c.match = match
	if hint, ok := hint(sel); ok {
		cs.byLabel[hint] = append(cs.byLabel[hint], c)
	} else {
		cs.rest = append(cs.rest, c)
	}
	return c
}

// ofOwners returns the counter of pods of certain classes.
func (cs *counters) ofOwners(id, key string, owners map[*capacity.Class]bool) *counter {
	c, made := cs.named(id, key)
	if made {
		for o := range owners {
			cs.byOwner[o] = append(cs.byOwner[o], c)
		}
	}
	return c
}

func (cs *counters) named(id, key string) (c *counter, made bool) {
	id = key + "\x00" + id
	if c := cs.byID[id]; c != nil {
		return c, false
	}
	c = &counter{id: len(cs.byID), key: key, ending: true}
	if key == corev1.LabelHostname {
		c.hosts = map[int]int{}
	} else {
		c.counts = map[string]int{}
	}
	cs.byID[id] = c
	return c, true
}

// hint is one label that every pod the selector matches has.
func hint(sel labels.Selector) (string, bool) {
	reqs, ok := sel.Requirements()
	if !ok {
		return "\x00nothing", true
	}
	for _, r := range reqs {
		if op := r.Operator(); (op == selection.In || op == selection.Equals || op == selection.DoubleEquals) && len(r.ValuesUnsorted()) == 1 {
			return r.Key() + "=" + r.ValuesUnsorted()[0], true
		}
	}
	return "", false
}

// of returns the counters that pods of the class add to, in order of their ids. Only to be called when all counters are made.
func (cs *counters) of(c *capacity.Class) []*counter {
	if out, ok := cs.memo[c]; ok {
		return out
	}
	out := slices.Clone(cs.byOwner[c])
	look := func(list []*counter) {
		for _, ct := range list {
			if ct.match(c) {
				out = append(out, ct)
			}
		}
	}
	look(cs.rest)
	if len(cs.byLabel) > 0 {
		for k, v := range c.Labels {
			look(cs.byLabel[k+"="+v])
		}
	}
	slices.SortFunc(out, func(a, b *counter) int { return a.id - b.id })
	cs.memo[c] = out
	return out
}

// topology builds the counters and rules that the demanded classes need and fills in the pods of the view.
func (s *solver) topology() {
	cs := newCounters()
	for _, d := range s.demands {
		c := d.class
		for _, sp := range c.Spread {
			ct := s.spreadCounter(cs, d, sp)
			d.rules = append(d.rules, &rule{kind: spread, key: sp.Key, counter: ct, self: sp.Matches(c.Namespace, c), maxSkew: sp.MaxSkew, minDom: sp.MinDomains, domains: s.domains(d, sp), hosts: s.hostsFor(d, sp)})
		}
		for _, t := range c.Affinity {
			d.rules = append(d.rules, &rule{kind: affinity, key: t.Key, counter: cs.get("t\x00"+t.ID, t.Key, t.Selector, t.Matches), self: t.Matches(c)})
		}
		for _, t := range c.AntiAffinity {
			d.rules = append(d.rules, &rule{kind: anti, key: t.Key, counter: cs.get("t\x00"+t.ID, t.Key, t.Selector, t.Matches), self: t.Matches(c)})
		}
	}
	s.inverse(cs)
	for _, n := range s.nodes {
		s.count(cs, n)
	}
	sigs := map[string]int{"": 0}
	for _, d := range s.demands {
		d.counted = cs.of(d.class)
		d.settle()
		sig := d.hosts.signature()
		if _, ok := sigs[sig]; !ok {
			sigs[sig] = len(sigs)
		}
		d.hostSig = sigs[sig]
	}
}

// count adds the pods of a node of the view to the counters.
func (s *solver) count(cs *counters, n *node) {
	for c, k := range n.Pods {
		for _, ct := range cs.of(c) {
			if ct.on != nil && !ct.on(n) {
				continue
			}
			counted := k
			if !ct.ending {
				counted = max(k-n.Terminating[c], 0)
			}
			if ct.hosts != nil {
				ct.addHost(n.host, counted)
			} else if dom, ok := n.domain(ct.key); ok {
				ct.add(dom, counted)
			}
		}
	}
}

// spreadCounter is the counter of a spread constraint: pods that are not being deleted, on nodes that the constraint's
// policies admit and that have all topology keys of the class's constraints (plugin PodTopologySpread). Classes whose
// policies admit the same nodes share it.
func (s *solver) spreadCounter(cs *counters, d *demand, sp capacity.Spread) *counter {
	c := d.class
	id := "s\x00" + c.Namespace + "\x00" + sp.Selector.String()
	if sp.HonorAffinity {
		id += "\x00" + placement(c.NodeTerms)
	}
	if sp.HonorTaints {
		id += fmt.Sprintf("\x00%v", c.Tolerations)
	}
	if len(c.Spread) > 1 {
		id += "\x00" + strings.Join(spreadKeys(c), ",")
	}
	ct := cs.get(id, sp.Key, sp.Selector, func(o *capacity.Class) bool { return sp.Matches(c.Namespace, o) })
	ct.ending = false
	ct.on = func(n *node) bool { return n.countsFor(c, sp) }
	return ct
}

// placement spells out alternative demands on a node: equal texts are equal demands.
func placement(terms []capacity.Requirements) string {
	if !slices.ContainsFunc(terms, func(t capacity.Requirements) bool { return len(t) > 0 }) {
		return ""
	}
	var b strings.Builder
	for _, t := range terms {
		b.WriteString("|" + spell(t))
	}
	return b.String()
}

// spell prints requirements in full: equal texts are equal requirements.
func spell(r capacity.Requirements) string {
	if len(r) == 0 {
		return ""
	}
	var b strings.Builder
	for _, k := range r.Keys() {
		for _, q := range r[k].Selectors() {
			fmt.Fprintf(&b, "%s %s %q;", q.Key, q.Operator, q.Values)
		}
	}
	return b.String()
}

func spreadKeys(c *capacity.Class) []string {
	var out []string
	for _, sp := range c.Spread {
		out = append(out, sp.Key)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// countsFor reports whether the node is one of those a spread constraint of the class looks at.
func (n *node) countsFor(c *capacity.Class, sp capacity.Spread) bool {
	for _, o := range c.Spread {
		if _, ok := n.domain(o.Key); !ok {
			return false
		}
	}
	if sp.HonorAffinity && !n.Satisfies(c.NodeTerms) {
		return false
	}
	if sp.HonorTaints {
		if _, ok := c.Tolerates(n.Taints); !ok {
			return false
		}
	}
	return true
}

// inverse adds a rule to every class that an anti-affinity term of another pod, placed or demanded, selects: where that
// pod is, the class may not go. Owners of equal terms are counted together.
func (s *solver) inverse(cs *counters) {
	type owned struct {
		term   capacity.PodTerm
		owners map[*capacity.Class]bool
	}
	terms := map[string]*owned{}
	note := func(c *capacity.Class) {
		for _, t := range c.AntiAffinity {
			id := t.Key + "\x00" + t.ID
			if terms[id] == nil {
				terms[id] = &owned{term: t, owners: map[*capacity.Class]bool{}}
			}
			terms[id].owners[c] = true
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
	if len(terms) == 0 {
		return
	}
	ids := make([]string, 0, len(terms))
	selects := newCounters() // used to look up which terms select a class
	of := map[*counter]*owned{}
	for id := range terms {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		o := terms[id]
		of[selects.get(o.term.ID, o.term.Key, o.term.Selector, o.term.Matches)] = o
	}
	for _, d := range s.demands {
		for _, sel := range selects.of(d.class) {
			o := of[sel]
			ct := cs.ofOwners("o\x00"+o.term.ID, o.term.Key, o.owners)
			d.rules = append(d.rules, &rule{kind: anti, key: o.term.Key, counter: ct, self: o.owners[d.class]})
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
		if n.Phase == capacity.Leaving && n.Name == "" {
			continue // it never joined and will not
		}
		if v, ok := n.domain(sp.Key); ok && n.countsFor(d.class, sp) {
			out[v] = true
		}
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

// hostsFor are the hosts a spread over hosts counts, nil where a new one can be bought or the spread is over something else.
func (s *solver) hostsFor(d *demand, sp capacity.Spread) []int {
	if sp.Key != corev1.LabelHostname || len(s.in.View.Pools) > 0 {
		return nil
	}
	out := []int{}
	for _, n := range s.nodes {
		if n.Name != "" && n.countsFor(d.class, sp) {
			out = append(out, n.host)
		}
	}
	return out
}

// valuesOf lists the values of a label key that a new node of the pool could have for a class.
func (q *pool) valuesOf(key string, f fit) []string {
	if q.Catalog.Defines(key) {
		return q.valuesIn(key, f.mask)
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
