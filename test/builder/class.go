// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// ClassBuilder builds a capacity.Class.
type ClassBuilder struct {
	class    capacity.Class
	requests corev1.ResourceList
}

// Class starts the class of pods in namespace default that ask for nothing but a pod slot and can go anywhere. The id is
// the class's ID.
func Class(id string) *ClassBuilder {
	b := &ClassBuilder{class: capacity.Class{ID: id, Namespace: metav1.NamespaceDefault}}
	return b.Request(corev1.ResourcePods, "1")
}

// Obj returns the class. Classes are compared by pointer: call it once for all pods of the class.
func (b *ClassBuilder) Obj() *capacity.Class {
	c := b.class
	c.Labels = maps.Clone(c.Labels)
	c.Requests = capacity.FromList(b.requests)
	c.Terms = slices.Clone(c.Terms)
	if len(c.Terms) == 0 {
		c.Terms = []capacity.Requirements{{}}
	}
	c.NodeTerms = c.Terms
	c.Tolerations = slices.Clone(c.Tolerations)
	c.HostPorts = slices.Clone(c.HostPorts)
	c.Spread, c.SoftSpread = slices.Clone(c.Spread), slices.Clone(c.SoftSpread)
	c.Affinity = slices.Clone(c.Affinity)
	c.AntiAffinity = slices.Clone(c.AntiAffinity)
	c.Preferred = slices.Clone(c.Preferred)
	c.PreferredAffinity, c.PreferredAntiAffinity = slices.Clone(c.PreferredAffinity), slices.Clone(c.PreferredAntiAffinity)
	return &c
}

// Namespace sets the namespace.
func (b *ClassBuilder) Namespace(ns string) *ClassBuilder {
	b.class.Namespace = ns
	return b
}

// Label adds a label the pods have.
func (b *ClassBuilder) Label(key, value string) *ClassBuilder {
	m := map[string]string(b.class.Labels)
	put(&m, key, value)
	b.class.Labels = labels.Set(m)
	return b
}

// CPU sets the CPU request.
func (b *ClassBuilder) CPU(quantity string) *ClassBuilder {
	return b.Request(corev1.ResourceCPU, quantity)
}

// Memory sets the memory request.
func (b *ClassBuilder) Memory(quantity string) *ClassBuilder {
	return b.Request(corev1.ResourceMemory, quantity)
}

// Request sets one request.
func (b *ClassBuilder) Request(name corev1.ResourceName, quantity string) *ClassBuilder {
	putQuantity(&b.requests, name, quantity)
	return b
}

// Term adds one alternative of node requirements.
func (b *ClassBuilder) Term(reqs ...capacity.Requirement) *ClassBuilder {
	b.class.Terms = append(b.class.Terms, capacity.NewRequirements(reqs...))
	return b
}

// Tolerate adds tolerations.
func (b *ClassBuilder) Tolerate(t ...corev1.Toleration) *ClassBuilder {
	b.class.Tolerations = append(b.class.Tolerations, t...)
	return b
}

// HostPort makes the pods bind a TCP port of their node, on all addresses.
func (b *ClassBuilder) HostPort(port int32) *ClassBuilder {
	b.class.HostPorts = append(b.class.HostPorts, capacity.HostPort{Protocol: corev1.ProtocolTCP, Port: port})
	return b
}

// ZoneSpread spreads pods with the labels over zones.
func (b *ClassBuilder) ZoneSpread(maxSkew int, labels map[string]string) *ClassBuilder {
	return b.spread(corev1.LabelTopologyZone, maxSkew, labels)
}

// NodeSpread spreads pods with the labels over nodes.
func (b *ClassBuilder) NodeSpread(maxSkew int, labels map[string]string) *ClassBuilder {
	return b.spread(corev1.LabelHostname, maxSkew, labels)
}

// CapacityTypeSpread spreads pods with the labels over capacity types.
func (b *ClassBuilder) CapacityTypeSpread(maxSkew int, labels map[string]string) *ClassBuilder {
	return b.spread(karpv1.CapacityTypeLabelKey, maxSkew, labels)
}

func (b *ClassBuilder) spread(key string, maxSkew int, set map[string]string) *ClassBuilder {
	sel := labels.SelectorFromSet(set)
	return b.Spread(capacity.Spread{
		Key: key, MaxSkew: maxSkew, MinDomains: 1, Selector: sel, HonorAffinity: true,
		ID: b.termID("spread", key, sel),
	})
}

// Spread adds any topology spread constraint.
func (b *ClassBuilder) Spread(s capacity.Spread) *ClassBuilder {
	b.class.Spread = append(b.class.Spread, s)
	return b
}

// Near requires a pod with the labels, of the class's namespace, in the same topology domain.
func (b *ClassBuilder) Near(topologyKey string, set map[string]string) *ClassBuilder {
	b.class.Affinity = append(b.class.Affinity, b.podTerm("near", topologyKey, set))
	return b
}

// Apart forbids pods with the labels, of the class's namespace, in the same topology domain.
func (b *ClassBuilder) Apart(topologyKey string, set map[string]string) *ClassBuilder {
	b.class.AntiAffinity = append(b.class.AntiAffinity, b.podTerm("apart", topologyKey, set))
	return b
}

// Prefer adds a preferred node affinity term.
func (b *ClassBuilder) Prefer(weight int32, reqs ...capacity.Requirement) *ClassBuilder {
	b.class.Preferred = append(b.class.Preferred, capacity.PreferredTerm{Weight: weight, Requirements: capacity.NewRequirements(reqs...)})
	return b
}

// PreferNear would like a pod with the labels, of the class's namespace, in the same topology domain.
func (b *ClassBuilder) PreferNear(weight int32, topologyKey string, set map[string]string) *ClassBuilder {
	b.class.PreferredAffinity = append(b.class.PreferredAffinity, capacity.WeightedTerm{Weight: weight, PodTerm: b.podTerm("near", topologyKey, set)})
	return b
}

// PreferApart would like no pod with the labels, of the class's namespace, in the same topology domain.
func (b *ClassBuilder) PreferApart(weight int32, topologyKey string, set map[string]string) *ClassBuilder {
	b.class.PreferredAntiAffinity = append(b.class.PreferredAntiAffinity, capacity.WeightedTerm{Weight: weight, PodTerm: b.podTerm("apart", topologyKey, set)})
	return b
}

// SoftSpread adds a ScheduleAnyway constraint with maxSkew 1.
func (b *ClassBuilder) SoftSpread(topologyKey string, set map[string]string) *ClassBuilder {
	sel := labels.SelectorFromSet(set)
	b.class.SoftSpread = append(b.class.SoftSpread, capacity.Spread{
		Key: topologyKey, MaxSkew: 1, MinDomains: 1, Selector: sel, HonorAffinity: true, ID: b.termID("spread", topologyKey, sel),
	})
	return b
}

// podTerm and spread use the namespace set so far, so Namespace comes before them.
func (b *ClassBuilder) podTerm(kind, key string, set map[string]string) capacity.PodTerm {
	sel := labels.SelectorFromSet(set)
	return capacity.PodTerm{
		Key: key, Selector: sel, Namespaces: sets.New(b.class.Namespace), ID: b.termID(kind, key, sel),
	}
}

func (b *ClassBuilder) termID(kind, key string, sel labels.Selector) string {
	return fmt.Sprintf("%s|%s|%s|%s", kind, b.class.Namespace, key, sel)
}

// PodsOf returns n pods of the class with priority 0, named <id>-0 … and with UIDs derived from class and number.
func PodsOf(c *capacity.Class, n int) []*capacity.Pod {
	out := make([]*capacity.Pod, n)
	for i := range out {
		name := fmt.Sprintf("%s-%d", c.ID, i)
		out[i] = &capacity.Pod{
			NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: name},
			UID:            types.UID(c.Namespace + "/" + name),
			Class:          c,
		}
	}
	return out
}
