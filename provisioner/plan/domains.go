// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// domainSets are the domains that nodes have, by the counter of the spread that looks at them: rules with one counter admit the
// same nodes.
type domainSets struct {
	nodes []*node
	of    map[*counter]domainSet
}

// domainSet are domains that nodes are in, and those that nodes on their way may be in.
type domainSet struct{ certain, maybe map[string]bool }

func domainsOf(nodes []*node) domainSets {
	return domainSets{nodes: nodes, of: map[*counter]domainSet{}}
}

// set sets the domains of a spread to those the nodes have, as far as its policies admit them.
func (ds domainSets) set(d *demand, r *rule) {
	if r.kind != spread || r.aboutHosts() {
		return
	}
	found, ok := ds.of[r.counter]
	if !ok {
		found = ds.find(d, r)
		ds.of[r.counter] = found
	}
	r.domains, r.maybe, r.floorAt = found.certain, found.maybe, 0
}

func (ds domainSets) find(d *demand, r *rule) domainSet {
	out := domainSet{certain: map[string]bool{}, maybe: map[string]bool{}}
	for _, n := range ds.nodes {
		if n.Phase == capacity.Leaving && n.Name == "" {
			continue // it never joined and will not
		}
		if v, ok := n.domain(r.key); ok {
			if !out.certain[v] && n.countsFor(d.class, r.over) {
				out.certain[v] = true
			}
			continue
		}
		if open := n.Requirements.Get(r.key); n.undecided(r.key) && open.Finite() {
			for _, v := range open.Values() {
				out.maybe[v] = true
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

// addPossible adds to the domains of a spread those that a new node of a pool could have which the class fits.
func (s *solver) addPossible(d *demand, r *rule) {
	if r.aboutHosts() {
		return
	}
	r.domains = maps.Clone(r.domains) // others have them, too
	for i, f := range d.pools {
		if f.ok {
			for _, v := range s.valuesOf(s.pools[i], r.key, f) {
				r.domains[v] = true
			}
		}
	}
}

// valuesOf lists the values of a label key that a new node of the pool could have for a class. Of a label that may have any
// value these are the ones there are on nodes, and one more.
func (s *solver) valuesOf(q *pool, key string, f fit) []string {
	if q.Catalog.Defines(key) {
		return q.valuesIn(key, f.mask)
	}
	r, ok := f.custom[key]
	if !ok {
		r, ok = q.Requirements[key]
	}
	if !ok || r.Finite() {
		return r.Values()
	}
	var out []string
	add := func(v string, ok bool) {
		if ok && r.Has(v) && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	add(r.Any())
	for _, n := range s.nodes {
		add(n.domain(key))
	}
	return out
}

// mayLack reports whether a new node of the pool can be without the label.
func (q *pool) mayLack(key string, f fit) bool {
	if q.Catalog.Defines(key) {
		return q.Catalog.Lacking(key).Intersects(f.mask.set)
	}
	r, ok := f.custom[key]
	if !ok {
		r, ok = q.Requirements[key]
	}
	return !ok || r.AllowsAbsent()
}
