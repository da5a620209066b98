// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// slot is one node of the last view with what it was made of.
type slot struct {
	key  slotKey
	from origin
	base *capacity.Node // without its pods
	// daemons are all daemonset pods the node will have, zero when none is to come any more.
	daemons capacity.Resources
	node    *capacity.Node
	stable  bool // no pod's class depends on namespaces
}

// origin is everything a node without its pods is made of, for comparison.
type origin struct {
	claim   *karpv1.NodeClaim
	node    *corev1.Node
	catalog *capacity.Catalog
	pool    poolVersion
}

// view returns the nodes, sorted by ID. Those nothing has happened to are the ones of the last view.
func (c *cluster) view(cv *converter, pending Pending) []*capacity.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pend(pending)
	c.compare(cv)
	var changed []*slot
	for key := range c.dirty {
		if s, ok := c.renew(cv, key, pending); ok {
			changed = append(changed, s)
		}
	}
	clear(c.dirty)
	c.arrange(changed)
	out := make([]*capacity.Node, len(c.order))
	for i, s := range c.order {
		out[i] = s.node
	}
	return out
}

// pend notes what only the caller knows: claims the cache does not show, and reservations.
func (c *cluster) pend(p Pending) {
	recent := make(map[string]*karpv1.NodeClaim, len(p.Claims))
	for _, claim := range p.Claims {
		if c.claims[claim.Name] == nil {
			recent[claim.Name] = claim
		}
	}
	for name := range c.recent {
		if recent[name] != c.recent[name] {
			c.dirty[slotKey{claim: true, name: name}] = true
		}
	}
	for name := range recent {
		if recent[name] != c.recent[name] {
			c.dirty[slotKey{claim: true, name: name}] = true
		}
	}
	c.recent = recent
	// Where a reserved pod is counted depends on whether it is bound, which may have changed on another node.
	for claim := range c.reserved {
		c.dirty[slotKey{claim: true, name: claim}] = true
	}
	for claim := range p.Reserved {
		c.dirty[slotKey{claim: true, name: claim}] = true
	}
	c.reserved = p.Reserved
}

// compare notes the claims whose pool or catalogue is another than at the last view.
func (c *cluster) compare(cv *converter) {
	if maps.Equal(c.versions, cv.pools.versions) {
		return
	}
	c.versions = cv.pools.versions
	for key, s := range c.slots {
		if key.claim && c.origin(cv, s.from.claim, s.from.node) != s.from {
			c.dirty[key] = true
		}
	}
}

func (c *cluster) origin(cv *converter, claim *karpv1.NodeClaim, n *corev1.Node) origin {
	out := origin{claim: claim, node: n}
	if claim != nil {
		out.catalog = cv.pools.catalogs[claim.Spec.NodeClassRef.Name]
		out.pool = cv.pools.versions[claim.Labels[karpv1.NodePoolLabelKey]]
	}
	return out
}

// find is the claim and the Node behind a slot; ok is false if there is none any more.
func (c *cluster) find(key slotKey) (claim *karpv1.NodeClaim, n *corev1.Node, ok bool) {
	if !key.claim {
		n = c.nodes[key.name]
		return nil, n, n != nil && (n.Spec.ProviderID == "" || c.launched[n.Spec.ProviderID] == "")
	}
	if claim = c.claims[key.name]; claim == nil {
		claim = c.recent[key.name]
	}
	if claim == nil {
		return nil, nil, false
	}
	if claim.Status.ProviderID != "" {
		n = c.nodes[c.joined[claim.Status.ProviderID]]
	}
	return claim, n, true
}

// renew makes the slot's node anew. It returns the slot if its place in the order has changed, with node nil if it is gone.
func (c *cluster) renew(cv *converter, key slotKey, pending Pending) (moved *slot, ok bool) {
	s := c.slots[key]
	claim, n, there := c.find(key)
	if !there {
		if s == nil {
			return nil, false
		}
		delete(c.slots, key)
		s.node = nil
		return s, true
	}
	before := ""
	if s == nil {
		s = &slot{key: key}
		c.slots[key] = s
	} else {
		before = s.node.ID()
	}
	if from := c.origin(cv, claim, n); s.base == nil || from != s.from {
		s.from = from
		if claim != nil {
			s.base, s.daemons = cv.claim(claim, n)
		} else {
			s.base = cv.foreign(n)
		}
	}
	s.node, s.stable = cv.b.fill(s.base, placed{bound: c.pods[s.base.Name], reserved: c.waiting(key, pending), daemons: s.daemons})
	return s, before != s.node.ID()
}

// waiting are the pods reserved on a claim that are not bound anywhere.
func (c *cluster) waiting(key slotKey, pending Pending) []*corev1.Pod {
	if !key.claim {
		return nil
	}
	var out []*corev1.Pod
	for _, p := range pending.Reserved[key.name] {
		if c.where[p.UID] == "" {
			out = append(out, p)
		}
	}
	return out
}

// arrange brings slots that are new, gone or renamed to their place.
func (c *cluster) arrange(changed []*slot) {
	if len(changed) == 0 {
		return
	}
	moved := make(map[*slot]bool, len(changed))
	for _, s := range changed {
		moved[s] = true
	}
	c.order = slices.DeleteFunc(c.order, func(s *slot) bool { return moved[s] })
	changed = slices.DeleteFunc(changed, func(s *slot) bool { return s.node == nil })
	slices.SortFunc(changed, compareSlots)
	merged := make([]*slot, 0, len(c.order)+len(changed))
	i := 0
	for _, s := range changed {
		for i < len(c.order) && compareSlots(c.order[i], s) < 0 {
			merged = append(merged, c.order[i])
			i++
		}
		merged = append(merged, s)
	}
	c.order = append(merged, c.order[i:]...)
}

func compareSlots(a, b *slot) int {
	return cmp.Or(strings.Compare(a.node.ID(), b.node.ID()), strings.Compare(a.key.name, b.key.name))
}
