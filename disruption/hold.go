// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// hold keeps places for moving pods on replacements that are on their way.
func (c *Controller) hold(s *Snapshot, order []*Record, of map[string][]*Node, claims map[string]*Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := map[string][]*corev1.Pod{}
	for _, r := range order {
		if len(r.Replacements) == 0 {
			continue
		}
		by := moving(of[r.ID])
		for _, name := range r.Replacements {
			n := claims[name]
			if _, coming := s.unseen[name]; n == nil && coming && len(c.held[name]) > 0 {
				held[name] = c.held[name]
			}
			if n == nil || n.Initialized() {
				continue
			}
			if pods := standIns(n.Claim, by); len(pods) > 0 {
				held[name] = pods
			}
		}
	}
	c.held = held
	c.Seats.Hold(held)
}

// holdMore keeps places on claims that are about to be created: whoever sees one of them first must not give its room away.
func (c *Controller) holdMore(going []*Node, bought []*karpv1.NodeClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := maps.Clone(c.held)
	if held == nil {
		held = map[string][]*corev1.Pod{}
	}
	by := moving(going)
	for _, claim := range bought {
		if pods := standIns(claim, by); len(pods) > 0 {
			held[claim.Name] = pods
		}
	}
	c.held = held
	c.Seats.Hold(held)
}

// moving are the pods of nodes that need another place, by namespace/name.
func moving(going []*Node) map[string]*corev1.Pod {
	by := map[string]*corev1.Pod{}
	for _, n := range going {
		for _, p := range n.Moving {
			by[client.ObjectKeyFromObject(p).String()] = p
		}
	}
	return by
}

// standIns are the places on a claim of the pods that it was bought for.
func standIns(claim *karpv1.NodeClaim, by map[string]*corev1.Pod) []*corev1.Pod {
	var out []*corev1.Pod
	for _, key := range splitNames(claim.Annotations[MovingAnnotation]) {
		if p := by[key]; p != nil {
			out = append(out, standIn(p))
		}
	}
	return out
}

// standIn is a pod's place on another node than its own.
func standIn(p *corev1.Pod) *corev1.Pod {
	out := *p // what is below the surface is shared and read-only
	out.UID = "moving/" + p.UID
	out.Spec.NodeName = ""
	out.Status = corev1.PodStatus{}
	return &out
}
