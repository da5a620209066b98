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
	Class    *Class
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
	// Terms are alternatives: a node satisfies the class if it satisfies at least one. Each is the node selector and one
	// required node affinity term; always at least one element, possibly empty. Requirements that volumes add are in each.
	Terms []Requirements
	// NodeNames restricts the class to nodes by name (matchFields on metadata.name); empty if unrestricted.
	NodeNames   sets.Set[string]
	Tolerations []corev1.Toleration
	HostPorts   []HostPort
	Spread      []Spread
	// Affinity and AntiAffinity are the required inter-pod terms.
	Affinity     []PodTerm
	AntiAffinity []PodTerm
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

// Spread is a topology spread constraint with whenUnsatisfiable DoNotSchedule.
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

// Tolerates reports whether the class tolerates every taint that would keep it off a node (NoSchedule and NoExecute),
// and the first it does not.
func (c *Class) Tolerates(taints []corev1.Taint) (corev1.Taint, bool) {
	return tolerates(c.Tolerations, taints)
}
