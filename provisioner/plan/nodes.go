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
	free  capacity.Resources
	ports []capacity.HostPort
}

func prepareNode(n *capacity.Node) *node {
	out := &node{Node: n, free: n.Free()}
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

// takes reports whether one more pod of the demand may go to the node.
func (n *node) takes(d *demand) bool {
	if n.Phase == capacity.Leaving || d.class.Unsupported != "" || d.nodeBars[n.ID()] || !d.class.Requests.Fits(n.free) || portsClash(n.ports, d.class.HostPorts) {
		return false
	}
	if _, ok := d.class.Tolerates(n.Taints); !ok {
		return false
	}
	if !n.Satisfies(d.class.Terms) {
		return false
	}
	for _, r := range d.rules {
		dom, ok := n.domain(r.key)
		switch {
		case ok && !r.allows(dom):
			return false
		case !ok && (r.kind != anti || n.undecided(r.key)):
			return false // a node without the label is no domain: only anti-affinity does not mind
		}
	}
	for _, c := range d.counted {
		if _, ok := n.domain(c.key); !ok && n.undecided(c.key) {
			return false // it would be counted in a domain nobody knows yet
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
	for len(d.pods) > 0 {
		var best *node
		load := 0
		for _, n := range s.nodes {
			if (s.in.OnlyInFlight && n.Phase == capacity.Usable) || !n.takes(d) {
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
		p := d.pods[0]
		d.pods = d.pods[1:]
		best.free = best.free.Sub(d.class.Requests)
		best.ports = append(best.ports, d.class.HostPorts...)
		d.record(best.spot(d), 1)
		d.recordHost(best.ID(), 1)
		s.out.Placements = append(s.out.Placements, Placement{Pod: p, Node: best.Node})
		s.step++
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
