// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// node is a node of the view while pods are being put on it.
type node struct {
	*capacity.Node
	host  int // the number of the host
	free  capacity.Resources
	ports []capacity.HostPort
}

func prepareNode(n *capacity.Node, host int) *node {
	out := &node{Node: n, host: host, free: n.Free()}
	for c, k := range n.Pods {
		if k > 0 {
			out.ports = append(out.ports, c.HostPorts...)
		}
	}
	return out
}

// domain is the node's value for a topology key; ok is false if it has none or it is not decided yet.
func (n *node) domain(key string) (string, bool) {
	if key == corev1.LabelHostname {
		return n.ID(), true
	}
	v, ok := n.Labels[key]
	return v, ok
}

// admits reports whether the node is one the demand may use at all; what changes while pods are placed is for takes.
func (n *node) admits(d *demand) bool {
	if n.Phase == capacity.Leaving || d.class.Unsupported != "" || d.nodeBars[n.ID()] || !n.Satisfies(d.class.Terms) {
		return false
	}
	if _, ok := d.class.Tolerates(n.Taints); !ok {
		return false
	}
	for _, c := range d.counted {
		if _, ok := n.domain(c.key); !ok && n.undecided(c.key) {
			return false // it would be counted in a domain nobody knows yet
		}
	}
	return true
}

// takes reports whether one more pod of the demand may go to the node, which admits it.
func (n *node) takes(d *demand) bool {
	if !d.class.Requests.Fits(n.free) || portsClash(n.ports, d.class.HostPorts) || d.hosts.room(n.host) == 0 {
		return false
	}
	for _, r := range d.rules {
		if r.aboutHosts() {
			continue
		}
		dom, ok := n.domain(r.key)
		switch {
		case ok && !r.allows(dom):
			return false
		case !ok && (r.kind != anti || n.undecided(r.key)):
			return false // a node without the label is no domain: only anti-affinity does not mind
		}
	}
	return true
}

func (n *node) undecided(key string) bool {
	_, ok := n.Requirements[key]
	return ok
}

func portsClash(have, want []capacity.HostPort) bool {
	for _, w := range want {
		if slices.ContainsFunc(have, w.Conflicts) {
			return true
		}
	}
	return false
}

// fillNodes puts pods on nodes that exist or are on their way, in the view's order, the least loaded domain first for
// classes that spread.
func (s *solver) fillNodes(d *demand) {
	var open []*node
	for _, n := range s.nodes {
		if (!s.in.OnlyInFlight || n.Phase != capacity.Usable) && d.class.Requests.Fits(n.free) && n.admits(d) {
			open = append(open, n)
		}
	}
	if len(d.keys) == 0 {
		s.fillInOrder(d, open)
		return
	}
	for len(d.pods) > 0 {
		var best *node
		load := 0
		for _, n := range open {
			if !n.takes(d) {
				continue
			}
			if l := d.load(n.spot(d)); best == nil || l < load {
				best, load = n, l
			}
			if load == 0 {
				break
			}
		}
		if best == nil {
			return
		}
		s.placeOn(best, d)
	}
}

// fillInOrder fills one node after the other: a node that takes no more now never will, unless others come first.
func (s *solver) fillInOrder(d *demand, open []*node) {
	for again := true; again && len(d.pods) > 0; {
		before := len(d.pods)
		for _, n := range open {
			for len(d.pods) > 0 && n.takes(d) {
				s.placeOn(n, d)
			}
		}
		again = len(d.pods) < before && d.hosts.floats()
	}
}

// placeOn puts the demand's next pod on the node.
func (s *solver) placeOn(n *node, d *demand) {
	p := d.pods[0]
	d.pods = d.pods[1:]
	n.free = n.free.Sub(d.class.Requests)
	n.ports = append(n.ports, d.class.HostPorts...)
	for _, c := range d.counted {
		switch dom, ok := n.domain(c.key); {
		case c.on != nil && !c.on(n):
		case c.hosts != nil:
			c.addHost(n.host, 1)
		case ok:
			c.add(dom, 1)
		}
	}
	s.out.Placements = append(s.out.Placements, Placement{Pod: p, Node: n.Node, Step: s.step})
	s.step++
}

func (n *node) spot(d *demand) spot {
	out := spot{}
	for _, k := range d.keys {
		if v, ok := n.domain(k); ok {
			out[k] = v
		}
	}
	return out
}
