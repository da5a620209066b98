// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// runsOn are the offerings on whose nodes pods of the daemonset may run.
func (q *pool) runsOn(d *capacity.Class) capacity.Set {
	set, ok := q.daemonsAt[d]
	if !ok {
		set = q.RunsOn(d)
		q.daemonsAt[d] = set
	}
	return set
}

// beside takes away the offerings on whose nodes a daemonset pod is in the way of pods of the class: it binds their host port,
// or one of the two does not want to be near the other. If none is left, why and detail say what took the last.
func (q *pool) beside(c *capacity.Class, set capacity.Set) (left capacity.Set, why Reason, detail string) {
	for _, d := range q.Daemons {
		if port, taken := clash(d.HostPorts, c.HostPorts); taken {
			why = PortTaken
			detail = fmt.Sprintf("host port %d/%s is taken by a daemonset pod of namespace %q on every node that would do", port.Port, port.Protocol, d.Namespace)
		} else if key, apart := q.apart(c, d); apart {
			why = TopologyBlocks
			detail = fmt.Sprintf("pod anti-affinity over %s excludes every node that would do: a daemonset pod of namespace %q runs there", key, d.Namespace)
		} else {
			continue
		}
		if set = set.AndNot(q.runsOn(d)); set.Empty() {
			return set, why, detail
		}
	}
	return set, "", ""
}

// clash returns the first host port that is wanted and taken.
func clash(have, want []capacity.HostPort) (capacity.HostPort, bool) {
	for _, w := range want {
		if slices.ContainsFunc(have, w.Conflicts) {
			return w, true
		}
	}
	return capacity.HostPort{}, false
}

// apart reports whether pods of the class and of the daemonset must not share a node of the pool, and over which key.
func (q *pool) apart(c, d *capacity.Class) (key string, ok bool) {
	for _, t := range c.AntiAffinity {
		if t.Matches(d) && q.labels(t.Key) {
			return t.Key, true
		}
	}
	for _, t := range d.AntiAffinity {
		if t.Matches(c) && q.labels(t.Key) {
			return t.Key, true
		}
	}
	return "", false
}

// labels reports whether nodes of the pool may have the label.
func (q *pool) labels(key string) bool {
	_, ok := q.Requirements[key]
	return ok || key == corev1.LabelHostname || q.Catalog.Defines(key)
}

// amongDaemons narrows the fits of a class whose pods have to be near certain others to nodes with daemonset pods that are
// such others, if the pools have any: with those no other company is needed. It reports whether they have.
func (s *solver) amongDaemons(c *capacity.Class, fits []fit) bool {
	if len(c.Affinity) == 0 {
		return false
	}
	found := false
	near := make([]capacity.Set, len(fits))
	for i, f := range fits {
		q := s.pools[i]
		if !f.ok || slices.ContainsFunc(c.Affinity, func(t capacity.PodTerm) bool { return !q.labels(t.Key) }) {
			continue
		}
		for _, d := range q.Daemons {
			if slices.ContainsFunc(c.Affinity, func(t capacity.PodTerm) bool { return !t.Matches(d) }) {
				continue
			}
			if near[i] == nil {
				near[i] = capacity.NewSet(len(q.Catalog.Offerings))
			}
			near[i] = near[i].Or(q.runsOn(d).And(f.wide.set))
		}
		found = found || (near[i] != nil && !near[i].Empty())
	}
	if !found {
		return false
	}
	narrowed := slices.Clone(fits)
	for i, f := range fits {
		switch {
		case !f.ok:
		case near[i] == nil || near[i].Empty():
			narrowed[i] = fit{why: TopologyBlocks, detail: "pod affinity: no daemonset pod that it selects runs on the pool's nodes"}
		default:
			narrowed[i] = s.pools[i].sizedFit(f, near[i], c)
		}
	}
	if !slices.ContainsFunc(narrowed, func(f fit) bool { return f.ok }) {
		return false
	}
	copy(fits, narrowed)
	return true
}
