// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	corev1 "k8s.io/api/core/v1"
)

// reach returns the alternatives a node has to satisfy one of so that all volumes of the pod can be attached to it: the
// node affinity of bound persistent volumes, and the allowed topologies of the storage class for claims still to be
// provisioned. Nil means the volumes do not constrain the node. Several volumes multiply their alternatives.
func (b *Builder) reach(pod *corev1.Pod) [][]corev1.NodeSelectorRequirement {
	var out [][]corev1.NodeSelectorRequirement
	for _, v := range pod.Spec.Volumes {
		name := ""
		switch {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = pod.Name + "-" + v.Name
		default:
			continue
		}
		out = cross(out, b.reachClaim(pod.Namespace, name))
	}
	return out
}

func (b *Builder) reachClaim(namespace, name string) [][]corev1.NodeSelectorRequirement {
	pvc, err := b.src.PersistentVolumeClaims.PersistentVolumeClaims(namespace).Get(name)
	if err != nil {
		return nil // not there yet: the scheduler says so itself
	}
	if pvc.Spec.VolumeName != "" {
		return b.reachVolume(pvc.Spec.VolumeName)
	}
	if pvc.Spec.StorageClassName == nil {
		return nil
	}
	sc, err := b.src.StorageClasses.Get(*pvc.Spec.StorageClassName)
	if err != nil {
		return nil
	}
	var out [][]corev1.NodeSelectorRequirement
	for _, t := range sc.AllowedTopologies {
		var term []corev1.NodeSelectorRequirement
		for _, e := range t.MatchLabelExpressions {
			term = append(term, corev1.NodeSelectorRequirement{Key: e.Key, Operator: corev1.NodeSelectorOpIn, Values: e.Values})
		}
		out = append(out, term)
	}
	return out
}

func (b *Builder) reachVolume(name string) [][]corev1.NodeSelectorRequirement {
	pv, err := b.src.PersistentVolumes.Get(name)
	if err != nil || pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	var out [][]corev1.NodeSelectorRequirement
	for _, t := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		out = append(out, t.MatchExpressions)
	}
	return out
}

// cross combines alternatives: one of a and one of b.
func cross(a, b [][]corev1.NodeSelectorRequirement) [][]corev1.NodeSelectorRequirement {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	var out [][]corev1.NodeSelectorRequirement
	for _, x := range a {
		for _, y := range b {
			out = append(out, append(append([]corev1.NodeSelectorRequirement{}, x...), y...))
		}
	}
	return out
}
