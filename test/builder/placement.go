// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	corev1 "k8s.io/api/core/v1"
)

// In is the node selector requirement that key has one of the values.
func In(key string, values ...string) corev1.NodeSelectorRequirement {
	return Requirement(key, corev1.NodeSelectorOpIn, values...)
}

// NotIn is the node selector requirement that key is absent or has none of the values.
func NotIn(key string, values ...string) corev1.NodeSelectorRequirement {
	return Requirement(key, corev1.NodeSelectorOpNotIn, values...)
}

// Requirement is any node selector requirement.
func Requirement(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
}

// NodeSelector adds one label to spec.nodeSelector.
func (b *PodBuilder) NodeSelector(key, value string) *PodBuilder {
	put(&b.pod.Spec.NodeSelector, key, value)
	return b
}

// NodeAffinity adds one required node affinity term. Requirements within a term all hold; terms are alternatives.
func (b *PodBuilder) NodeAffinity(term ...corev1.NodeSelectorRequirement) *PodBuilder {
	na := b.nodeAffinity()
	if na.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		na.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
	}
	required := na.RequiredDuringSchedulingIgnoredDuringExecution
	required.NodeSelectorTerms = append(required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: term})
	return b
}

// PreferNodes adds one preferred node affinity term with a weight of 1 to 100.
func (b *PodBuilder) PreferNodes(weight int32, term ...corev1.NodeSelectorRequirement) *PodBuilder {
	na := b.nodeAffinity()
	na.PreferredDuringSchedulingIgnoredDuringExecution = append(na.PreferredDuringSchedulingIgnoredDuringExecution,
		corev1.PreferredSchedulingTerm{Weight: weight, Preference: corev1.NodeSelectorTerm{MatchExpressions: term}})
	return b
}

// ZoneSpread spreads pods with the labels over zones, as a hard constraint.
func (b *PodBuilder) ZoneSpread(maxSkew int32, labels map[string]string) *PodBuilder {
	return b.Spread(corev1.LabelTopologyZone, maxSkew, labels)
}

// NodeSpread spreads pods with the labels over nodes, as a hard constraint.
func (b *PodBuilder) NodeSpread(maxSkew int32, labels map[string]string) *PodBuilder {
	return b.Spread(corev1.LabelHostname, maxSkew, labels)
}

// Spread adds a topology spread constraint with whenUnsatisfiable DoNotSchedule.
func (b *PodBuilder) Spread(topologyKey string, maxSkew int32, labels map[string]string) *PodBuilder {
	return b.Constraint(corev1.TopologySpreadConstraint{
		TopologyKey: topologyKey, MaxSkew: maxSkew,
		WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector(labels),
	})
}

// Constraint adds any topology spread constraint.
func (b *PodBuilder) Constraint(c corev1.TopologySpreadConstraint) *PodBuilder {
	b.pod.Spec.TopologySpreadConstraints = append(b.pod.Spec.TopologySpreadConstraints, c)
	return b
}

// Near requires a pod with the labels in the same topology domain (pod affinity).
func (b *PodBuilder) Near(topologyKey string, labels map[string]string) *PodBuilder {
	a := b.affinity()
	if a.PodAffinity == nil {
		a.PodAffinity = &corev1.PodAffinity{}
	}
	required := &a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	*required = append(*required, podTerm(topologyKey, labels))
	return b
}

// Apart forbids pods with the labels in the same topology domain (pod anti-affinity).
func (b *PodBuilder) Apart(topologyKey string, labels map[string]string) *PodBuilder {
	a := b.antiAffinity()
	a.RequiredDuringSchedulingIgnoredDuringExecution = append(a.RequiredDuringSchedulingIgnoredDuringExecution,
		podTerm(topologyKey, labels))
	return b
}

// PreferApart prefers domains without pods with the labels, with a weight of 1 to 100.
func (b *PodBuilder) PreferApart(weight int32, topologyKey string, labels map[string]string) *PodBuilder {
	a := b.antiAffinity()
	a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
		corev1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: podTerm(topologyKey, labels)})
	return b
}

func podTerm(topologyKey string, labels map[string]string) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{TopologyKey: topologyKey, LabelSelector: selector(labels)}
}

func (b *PodBuilder) affinity() *corev1.Affinity {
	if b.pod.Spec.Affinity == nil {
		b.pod.Spec.Affinity = &corev1.Affinity{}
	}
	return b.pod.Spec.Affinity
}

func (b *PodBuilder) nodeAffinity() *corev1.NodeAffinity {
	a := b.affinity()
	if a.NodeAffinity == nil {
		a.NodeAffinity = &corev1.NodeAffinity{}
	}
	return a.NodeAffinity
}

func (b *PodBuilder) antiAffinity() *corev1.PodAntiAffinity {
	a := b.affinity()
	if a.PodAntiAffinity == nil {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{}
	}
	return a.PodAntiAffinity
}
