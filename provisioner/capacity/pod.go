// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Pod is one pod that wants a place or has one.
type Pod struct {
	types.NamespacedName
	UID      types.UID
	Priority int32
	// NeverPreempts says that the pod's preemption policy is Never: it waits for room rather than for victims.
	NeverPreempts bool
	Class         *Class
}

// Class is everything about a pod that decides where it can go. Pods created from one template share one Class,
// compared by pointer; ID makes it comparable across processes and orders classes deterministically.
type Class struct {
	// ID is a stable digest of the fields below.
	ID        string
	Namespace string
	Labels    labels.Set
	// Requests is what the scheduler counts: containers and init containers, pod-level resources, overhead, and one pod.
	Requests Resources
	// Terms are alternatives: a node satisfies the class if it satisfies at least one. Each is the node selector, one
	// required node affinity term (the node's name under NodeNameField) and one way to reach the volumes; always at least one
	// element, possibly empty.
	Terms []Requirements
	// NodeTerms are Terms without what volumes add: the nodes that spread constraints with HonorAffinity count.
	NodeTerms   []Requirements
	Tolerations []corev1.Toleration
	HostPorts   []HostPort
	// Spread are the constraints that have to hold (DoNotSchedule), SoftSpread those that should (ScheduleAnyway).
	Spread, SoftSpread []Spread
	// Affinity and AntiAffinity are the required inter-pod terms.
	Affinity     []PodTerm
	AntiAffinity []PodTerm
	// Preferred, PreferredAffinity and PreferredAntiAffinity are what the pod would like, each with its weight.
	Preferred             []PreferredTerm
	PreferredAffinity     []WeightedTerm
	PreferredAntiAffinity []WeightedTerm
	// Unsupported is why no node is ever bought for the class, naming the field of the pod; empty if one can be.
	Unsupported string
}

// NodeNameField is the key under which a requirement on the node's name (matchFields on metadata.name) is kept among those
// on labels. No label can have it.
const NodeNameField = "field:metadata.name"

// PreferredTerm is a preferred node affinity term; the weight is 1 to 100.
type PreferredTerm struct {
	Weight       int32
	Requirements Requirements
}

// WeightedTerm is a preferred inter-pod term; the weight is 1 to 100.
type WeightedTerm struct {
	Weight int32
	PodTerm
}

// HostPort is a port a pod binds on its node. IP is empty for all addresses.
type HostPort struct {
	IP       string
	Protocol corev1.Protocol
	Port     int32
}

// Conflicts reports whether two pods with these ports cannot share a node: same port and protocol, and equal
// addresses or a wildcard on either side (scheduler plugin NodePorts).
func (h HostPort) Conflicts(o HostPort) bool {
	return h.Port == o.Port && h.Protocol == o.Protocol && (h.IP == o.IP || h.IP == "" || o.IP == "")
}

// Spread is a topology spread constraint.
type Spread struct {
	Key        string
	MaxSkew    int
	MinDomains int // at least 1
	Selector   labels.Selector
	// HonorAffinity and HonorTaints say which nodes count as domains: only those the pod's node affinity (default true)
	// and its tolerations (default false) admit.
	HonorAffinity bool
	HonorTaints   bool
	// ID tells constraints apart that count different pods; equal IDs count the same.
	ID string
}

// PodTerm is a required inter-pod affinity or anti-affinity term.
type PodTerm struct {
	Key        string
	Selector   labels.Selector
	Namespaces sets.Set[string] // the namespaces it selects pods in; already resolved, never empty
	ID         string
}

// Matches reports whether the term selects pods of the class.
func (t PodTerm) Matches(c *Class) bool {
	return t.Namespaces.Has(c.Namespace) && t.Selector.Matches(c.Labels)
}

// Matches reports whether the constraint counts pods of class c for a pod of namespace ns.
func (s Spread) Matches(ns string, c *Class) bool {
	return c.Namespace == ns && s.Selector.Matches(c.Labels)
}

// HasSoftRules reports whether the class has topology rules that need not hold.
func (c *Class) HasSoftRules() bool {
	return len(c.SoftSpread)+len(c.PreferredAffinity)+len(c.PreferredAntiAffinity) > 0
}

// Avoids is how many PreferNoSchedule taints there are that the class does not tolerate: its pods go to such a node only if
// there is nothing better.
func (c *Class) Avoids(taints []corev1.Taint) int {
	n := 0
	for _, t := range taints {
		if t.Effect == corev1.TaintEffectPreferNoSchedule && !anyTolerates(c.Tolerations, t) {
			n++
		}
	}
	return n
}

// Tolerates reports whether the class tolerates every taint that would keep it off a node (NoSchedule and NoExecute),
// and the first it does not.
func (c *Class) Tolerates(taints []corev1.Taint) (corev1.Taint, bool) {
	return Tolerates(c.Tolerations, taints)
}
