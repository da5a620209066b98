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
	s.counters = cs
	there := domainsOf(s.nodes)
	for _, d := range s.demands {
		c := d.class
		for _, sp := range c.Spread {
			ct := s.spreadCounter(cs, d, sp)
			d.rules = append(d.rules, &rule{kind: spread, key: sp.Key, counter: ct, self: sp.Matches(c.Namespace, c), maxSkew: sp.MaxSkew, minDom: sp.MinDomains, over: sp, hosts: s.hostsFor(d, sp)})
			there.set(d, d.rules[len(d.rules)-1])
			s.addPossible(d, d.rules[len(d.rules)-1])
		}
		s.nearRules(cs, d)
		for _, t := range c.AntiAffinity {
			ct := cs.get("a\x00"+t.ID, t.Key, t.Selector, t.Matches)
			ct.anywhere = true
			d.rules = append(d.rules, &rule{kind: anti, key: t.Key, counter: ct, self: t.Matches(c)})
		}
	}
	s.inverse(cs)
	for _, n := range s.nodes {
		cs.count(n)
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

// nearRules adds the demand's affinity terms. Its first pod may go anywhere, if it counts for all of them itself: while no
// pod counts for any of them (plugin InterPodAffinity).
func (s *solver) nearRules(cs *counters, d *demand) {
	var group []*counter
	self := true
	from := len(d.rules)
	for _, t := range d.class.Affinity {
		ct := cs.get("t\x00"+t.ID, t.Key, t.Selector, t.Matches)
		group = append(group, ct)
		self = self && t.Matches(d.class)
		d.rules = append(d.rules, &rule{kind: affinity, key: t.Key, counter: ct, daemons: d.company, fresh: s.hosts})
	}
	for _, r := range d.rules[from:] {
		r.self, r.group = self, group
		if r.aboutHosts() { // every pod that is counted anywhere is on a host; those dealt to a zone before they have one are not
			r.group = []*counter{r.counter}
		}
	}
}

// count adds the pods of a node to the counters.
func (cs *counters) count(n *node) {
	for c, k := range n.Pods {
		for _, ct := range cs.of(c) {
			if ct.ending {
				ct.note(n, k)
			} else {
				ct.note(n, max(k-n.Terminating[c], 0))
			}
		}
	}
	for _, c := range n.coming {
		for _, ct := range cs.of(c) {
			ct.note(n, 1)
		}
	}
}

// note counts k pods on a node. Where it is not decided in which domain the node will be, none is sure to have them, but any
// may have: that is what matters to those that want to be apart.
func (c *counter) note(n *node, k int) {
	if c.on != nil && !c.on(n) {
		return
	}
	if c.hosts != nil {
		c.addHost(n.host, k)
		return
	}
	if dom, ok := n.domain(c.key); ok {
		c.add(dom, k)
		return
	}
	open, undecided := n.Requirements[c.key]
	switch {
	case !undecided:
	case c.anywhere && open.Finite():
		for _, dom := range open.Values() {
			c.add(dom, k)
		}
	default:
		c.total += k // they are somewhere: nobody is the first of their group
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
	if keys := spreadKeys(c); len(keys) > 1 || (len(keys) == 1 && keys[0] != sp.Key) {
		id += "\x00" + strings.Join(keys, ",")
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
		for _, c := range n.coming {
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
			ct.anywhere = true
			d.rules = append(d.rules, &rule{kind: anti, key: o.term.Key, counter: ct, self: o.owners[d.class]})
		}
	}
}
