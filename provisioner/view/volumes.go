// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// hasClaims reports whether the pod uses persistent volume claims.
func hasClaims(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil })
}

// reach returns the alternatives a node has to satisfy one of so that all volumes of the pod can be attached to it: the
// node affinity and zone labels of bound persistent volumes, and the allowed topologies of the storage class for claims
// still to be provisioned. Nil means that the volumes do not constrain the node, empty that no node reaches all of them.
func (b *Builder) reach(pod *corev1.Pod) [][]corev1.NodeSelectorRequirement {
	var all ways
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			all = all.and(b.reachClaim(pod.Namespace, v.PersistentVolumeClaim.ClaimName))
		case v.Ephemeral != nil:
			all = all.and(b.reachClaim(pod.Namespace, pod.Name+"-"+v.Name))
		}
	}
	return all.selectors()
}

func (b *Builder) reachClaim(namespace, name string) ways {
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
	if err != nil || len(sc.AllowedTopologies) == 0 {
		return nil
	}
	out := ways{}
	for _, t := range sc.AllowedTopologies {
		reqs := capacity.Requirements{}
		for _, e := range t.MatchLabelExpressions {
			reqs = reqs.With(capacity.In(e.Key, e.Values...))
		}
		if len(reqs) > 0 { // an empty term matches no node
			out = append(out, reqs)
		}
	}
	return out
}

func (b *Builder) reachVolume(name string) ways {
	pv, err := b.src.PersistentVolumes.Get(name)
	if err != nil {
		return nil
	}
	out := zoneLabels(pv)
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return out
	}
	terms := ways{}
	for _, t := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		if reqs, err := capacity.FromSelectors(t.MatchExpressions); err == nil && len(reqs) > 0 {
			terms = append(terms, reqs)
		}
	}
	return out.and(terms)
}

// zoneLabels reads the zone and region labels of a volume made before node affinity was, as plugin VolumeZone does.
// Several zones are separated by two underscores.
func zoneLabels(pv *corev1.PersistentVolume) ways {
	reqs := capacity.Requirements{}
	for _, key := range []string{
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
	} {
		if v, ok := pv.Labels[key]; ok {
			reqs = reqs.With(capacity.In(key, strings.Split(v, "__")...))
		}
	}
	if len(reqs) == 0 {
		return nil
	}
	return ways{reqs}
}

// ways are alternatives: nil for no constraint, empty for none that works.
type ways []capacity.Requirements

// and combines one alternative of each. Those that contradict themselves are dropped, equal ones are kept once, so that
// a pod with many volumes has as many alternatives as there are zones and not the product.
func (w ways) and(o ways) ways {
	if w == nil {
		return o
	}
	if o == nil {
		return w
	}
	out := ways{}
	seen := map[string]bool{}
	for _, a := range w {
		for _, b := range o {
			both := a.And(b)
			key := fmt.Sprint(selectors(both))
			if !seen[key] && !impossible(both) {
				seen[key] = true
				out = append(out, both)
			}
		}
	}
	if len(out) == 0 && len(w) > 0 && len(o) > 0 {
		return ways{w[0].And(o[0])} // one contradiction says why no node will do
	}
	return out
}

func impossible(r capacity.Requirements) bool {
	for _, q := range r {
		if q.Impossible() {
			return true
		}
	}
	return false
}

// selectors spells the alternatives out, in a form that marshals.
func (w ways) selectors() [][]corev1.NodeSelectorRequirement {
	if w == nil {
		return nil
	}
	out := make([][]corev1.NodeSelectorRequirement, 0, len(w))
	for _, r := range w {
		out = append(out, selectors(r))
	}
	return out
}

func selectors(r capacity.Requirements) []corev1.NodeSelectorRequirement {
	var out []corev1.NodeSelectorRequirement
	for _, key := range r.Keys() {
		out = append(out, r[key].Selectors()...)
	}
	return out
}
