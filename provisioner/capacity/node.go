// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Phase is how far a node has come.
type Phase int

const (
	// Planned: a NodeClaim exists, no instance is known yet.
	Planned Phase = iota
	// Launched: the instance exists, the node is not usable yet.
	Launched
	// Usable: registered, ready, free of startup taints, all resources reported. The scheduler can bind to it.
	Usable
	// Leaving: being deleted or drained; never a place for a pod.
	Leaving
)

// String names the phase.
func (p Phase) String() string {
	return [...]string{"Planned", "Launched", "Usable", "Leaving"}[p]
}

// Node is a node that exists or is on its way.
type Node struct {
	// Name is the Node's name, empty until the Node object is there. To the scheduler's topology spread a node that is there is
	// part of its domain in every phase, cordoned ones included.
	Name string
	// Claim is the NodeClaim's name, empty for nodes Slipway did not buy.
	Claim    string
	ClaimUID types.UID
	Pool     string
	Phase    Phase
	// Labels are the node's labels; for a node that has not registered, those its claim will give it. Requirements
	// holds what is not decided yet (a claim without an instance may still get any of several types and zones).
	Labels       map[string]string
	Requirements Requirements
	// Taints are those a pod has to tolerate: startup taints and the taints every booting node has are left out while
	// the node is not usable.
	Taints      []corev1.Taint
	Capacity    Resources
	Allocatable Resources
	// Pods are the pods bound to the node or reserved on it, with how many of each class; Used is the sum of their requests
	// and of the daemonset pods that are still to come.
	Pods map[*Class]int
	Used Resources
	// Terminating are those of Pods that are being deleted, nil if there are none. Until they are gone they hold their
	// resources and ports and count for affinity and anti-affinity, but not for topology spread (plugin PodTopologySpread).
	Terminating map[*Class]int
	// InstanceType, Zone, CapacityType and Price (US dollars an hour) are zero where not known.
	InstanceType string
	Zone         string
	CapacityType string
	Price        float64
}

// Free is what is left for further pods; components may be negative.
func (n *Node) Free() Resources { return n.Allocatable.Sub(n.Used) }

// ID returns the name the node is known by: Node name, else NodeClaim name.
func (n *Node) ID() string {
	if n.Name != "" {
		return n.Name
	}
	return n.Claim
}

// Satisfies reports whether the node, however what is undecided about it turns out, meets one of the terms: those of a class,
// or its NodeTerms.
func (n *Node) Satisfies(terms []Requirements) bool {
	return slices.ContainsFunc(terms, n.Meets)
}

// Meets reports whether the node, however what is undecided about it turns out, meets the term. On labels that are decided
// it is the scheduler's NodeAffinity: NotIn and DoesNotExist accept an absent label, everything else needs it.
func (n *Node) Meets(term Requirements) bool {
	for key, want := range term {
		v, decided := labelValue(n.Labels, key)
		if key == NodeNameField {
			v, decided = n.Name, n.Name != ""
		}
		if decided {
			if !want.Has(v) {
				return false
			}
			continue
		}
		open, ok := n.Requirements[key]
		if !ok {
			if !want.AllowsAbsent() {
				return false
			}
			continue
		}
		if !open.Finite() || (open.AllowsAbsent() && !want.AllowsAbsent()) || slices.ContainsFunc(open.Values(), func(v string) bool { return !want.Has(v) }) {
			return false
		}
	}
	return true
}
