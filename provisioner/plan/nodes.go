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
	// coming are the daemonsets that will have a pod on a node that is on its way.
	coming []*capacity.Class
}

func (s *solver) prepareNode(n *capacity.Node) *node {
	out := &node{Node: n, host: s.hosts, free: n.Free()}
	s.hosts++
	for c, k := range n.Pods {
		if k > 0 {
			out.ports = append(out.ports, c.HostPorts...)
		}
	}
	if n.Claim == "" || (n.Phase != capacity.Planned && n.Phase != capacity.Launched) {
		return out
	}
	if pool := s.in.View.Pool(n.Pool); pool != nil {
		for _, d := range pool.Daemons {
			if pool.Runs(d, &capacity.InstanceType{Labels: n.Labels}, n.Labels) {
				out.coming = append(out.coming, d)
				out.ports = append(out.ports, d.HostPorts...)
			}
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
	return d.class.Requests.Fits(n.free) && !portsClash(n.ports, d.class.HostPorts) && n.obeys(d)
}

// obeys reports whether one more pod of the demand on the node is within all topology rules.
func (n *node) obeys(d *demand) bool {
	if d.hosts.room(n.host) == 0 {
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
	_, taken := clash(have, want)
	return taken
}

// fillAll puts pods of the demands on nodes that exist or are on their way. Where pods wait for others to be near to, it goes
// over them again.
func (s *solver) fillAll(demands []*demand) {
	for again := true; again; {
		again = false
		waiting := false
		for _, d := range demands {
			before := len(d.pods)
			s.fillNodes(d)
			again = again || len(d.pods) < before
			waiting = waiting || (len(d.pods) > 0 && d.follows())
		}
		again = again && waiting
	}
}

// fillNodes puts pods on nodes that exist or are on their way, in the view's order, the least loaded domain first for
// classes that spread.
func (s *solver) fillNodes(d *demand) {
	var open []*node
	for _, n := range s.nodes {
		if (!s.in.OnlyInFlight || n.Phase != capacity.Usable) && d.class.Requests.Fits(n.free) && n.admits(d) && !s.lessons.nodes[capKey(d, n.ID())] {
			open = append(open, n)
		}
	}
	if len(d.keys) == 0 && !d.picky() && !avoided(d, open) {
		s.fillInOrder(d, open)
		return
	}
	for len(d.pods) > 0 {
		var best *node
		load, dislike := 0, 0.0
		for _, n := range open {
			if !n.takes(d) {
				continue
			}
			l, u := d.load(n.spot(d)), d.dislike(n)
			if best == nil || l < load || (l == load && u < dislike) {
				best, load, dislike = n, l, u
			}
			if load == 0 && dislike <= 0 {
				break
			}
		}
		if best == nil {
			return
		}
		s.placeOn(best, d)
	}
}

// avoided reports whether a node has a taint that keeps pods of the demand off if possible.
func avoided(d *demand, nodes []*node) bool {
	return slices.ContainsFunc(nodes, func(n *node) bool { return d.class.Avoids(n.Taints) > 0 })
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
	n.record(d)
	for _, c := range d.softCounted {
		c.note(n, 1)
	}
	s.out.Placements = append(s.out.Placements, Placement{Pod: p, Node: n.Node, Step: s.step})
	s.step++
}

// record counts one more pod of the demand on the node.
func (n *node) record(d *demand) {
	for _, c := range d.counted {
		switch dom, ok := n.domain(c.key); {
		case c.on != nil && !c.on(n):
		case c.hosts != nil:
			c.addHost(n.host, 1)
		case ok:
			c.add(dom, 1)
		}
	}
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
