// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// hasClaims reports whether the pod uses persistent volume claims.
func hasClaims(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil })
}

// signVolumes adds what the volumes of a pod without a node ask of the node: the alternatives to reach them, of which the
// node has to satisfy one (the node affinity and zone labels of bound volumes, the allowed topologies of the storage class
// for those still to be provisioned), and how many are to be attached. Volumes that no node helps make the pod unsupported.
func (b *Builder) signVolumes(s *signature, pod *corev1.Pod) {
	var all ways
	drivers := map[string]map[string]bool{}
	for i := range pod.Spec.Volumes {
		c, ok := b.claim(pod, &pod.Spec.Volumes[i])
		if !ok {
			continue
		}
		if why := b.unusable(c); why != "" && s.Unsupported == "" {
			s.Unsupported = why
		}
		all = all.and(b.reachClaim(c))
		if driver, handle := b.attached(c); driver != "" {
			if drivers[driver] == nil {
				drivers[driver] = map[string]bool{}
			}
			drivers[driver][handle] = true
		}
	}
	s.Volumes = all.selectors()
	for _, d := range slices.Sorted(maps.Keys(drivers)) {
		s.Attach = append(s.Attach, capacity.Quantity{Name: corev1.ResourceName(d), Value: int64(len(drivers[d]))})
	}
}

// volumeClaim is a claim a pod uses; pvc is nil if it is not there.
type volumeClaim struct {
	namespace, name string
	pvc             *corev1.PersistentVolumeClaim
}

// claim is the claim behind a volume of the pod; ok is false if it has none. The claim of a generic ephemeral volume that its
// controller has not made yet is read off the template.
func (b *Builder) claim(pod *corev1.Pod, v *corev1.Volume) (c volumeClaim, ok bool) {
	c.namespace = pod.Namespace
	switch {
	case v.PersistentVolumeClaim != nil:
		c.name = v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		c.name = pod.Name + "-" + v.Name
	default:
		return c, false
	}
	if pvc, err := b.src.PersistentVolumeClaims.PersistentVolumeClaims(c.namespace).Get(c.name); err == nil {
		c.pvc = pvc
	} else if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		t := v.Ephemeral.VolumeClaimTemplate
		c.pvc = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name, Annotations: t.Annotations}, Spec: t.Spec}
	}
	return c, true
}

// class is the claim's storage class, nil if it has none or it is not there.
func (b *Builder) class(c volumeClaim) (name string, sc *storagev1.StorageClass) {
	if c.pvc == nil {
		return "", nil
	}
	name, ok := c.pvc.Annotations[corev1.BetaStorageClassAnnotation]
	if !ok && c.pvc.Spec.StorageClassName != nil {
		name = *c.pvc.Spec.StorageClassName
	}
	if name == "" {
		return "", nil
	}
	sc, err := b.src.StorageClasses.Get(name)
	if err != nil {
		return name, nil
	}
	return name, sc
}

// unusable says why no node, of whatever kind, would let the claim be used; empty if one may.
func (b *Builder) unusable(c volumeClaim) string {
	what := fmt.Sprintf("PersistentVolumeClaim %q (spec.volumes)", c.namespace+"/"+c.name)
	switch {
	case c.pvc == nil:
		return what + " does not exist"
	case !c.pvc.DeletionTimestamp.IsZero():
		return what + " is being deleted"
	case c.pvc.Status.Phase == corev1.ClaimLost:
		return what + " has lost its volume"
	case c.pvc.Spec.VolumeName != "":
		return ""
	}
	name, sc := b.class(c)
	switch {
	case sc == nil && name != "":
		return fmt.Sprintf("%s is not bound and its StorageClass %q does not exist", what, name)
	case sc == nil || sc.VolumeBindingMode == nil || *sc.VolumeBindingMode == storagev1.VolumeBindingImmediate:
		return what + " is not bound, and is to be before its pod is scheduled"
	}
	return ""
}

// attached is the CSI driver that attaches the claim's volume, empty if none does, and what tells the volume apart among
// those of the driver. In-tree EBS volumes are the driver's (plugin NodeVolumeLimits counts them so).
func (b *Builder) attached(c volumeClaim) (driver, handle string) {
	if c.pvc == nil {
		return "", ""
	}
	if c.pvc.Spec.VolumeName != "" {
		if pv, err := b.src.PersistentVolumes.Get(c.pvc.Spec.VolumeName); err == nil {
			switch {
			case pv.Spec.CSI != nil:
				return pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle
			case pv.Spec.AWSElasticBlockStore != nil:
				return ebsDriver, pv.Spec.AWSElasticBlockStore.VolumeID
			default:
				return "", ""
			}
		}
	}
	_, sc := b.class(c)
	switch {
	case sc == nil:
		return "", ""
	case sc.Provisioner == "kubernetes.io/aws-ebs":
		return ebsDriver, c.namespace + "/" + c.name
	default:
		return sc.Provisioner, c.namespace + "/" + c.name
	}
}

const ebsDriver = "ebs.csi.aws.com"

// inUse counts the volumes attached for the pods, each once, by CSI driver.
func (b *Builder) inUse(pods map[types.UID]*corev1.Pod) capacity.Resources {
	seen := map[string]map[string]bool{}
	for _, p := range pods {
		for i := range p.Spec.Volumes {
			c, ok := b.claim(p, &p.Spec.Volumes[i])
			if !ok {
				continue
			}
			driver, handle := b.attached(c)
			if driver == "" {
				continue
			}
			if seen[driver] == nil {
				seen[driver] = map[string]bool{}
			}
			seen[driver][handle] = true
		}
	}
	var out capacity.Resources
	for driver, handles := range seen {
		out = out.WithVolumes(driver, int64(len(handles)))
	}
	return out
}

// limits are the volumes a node can attach, by CSI driver; none if its CSINode is not there yet.
func (b *Builder) limits(node string) (out capacity.Resources) {
	if b.src.CSINodes == nil || node == "" {
		return out
	}
	n, err := b.src.CSINodes.Get(node)
	if err != nil {
		return out
	}
	for _, d := range n.Spec.Drivers {
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			out = out.WithVolumes(d.Name, int64(*d.Allocatable.Count))
		}
	}
	return out
}

func (b *Builder) reachClaim(c volumeClaim) ways {
	if c.pvc == nil {
		return nil
	}
	if c.pvc.Spec.VolumeName != "" {
		return b.reachVolume(c.pvc.Spec.VolumeName)
	}
	_, sc := b.class(c)
	if sc == nil || len(sc.AllowedTopologies) == 0 {
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
