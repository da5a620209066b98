// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package fidelity

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"

	"github.com/slipway-sh/slipway/test/builder"
)

// storage is what every generated world has: the scheduler's volume plugins keep what they know of volumes from informers,
// which cannot be changed between two worlds as a snapshot can. Each namespace has all kinds of claims.
func storage() []runtime.Object {
	wait, immediate := storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate
	class := func(name string, mode storagev1.VolumeBindingMode, zones ...string) *storagev1.StorageClass {
		c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: ebsDriver, VolumeBindingMode: &mode}
		for _, z := range zones {
			c.AllowedTopologies = append(c.AllowedTopologies, corev1.TopologySelectorTerm{
				MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: corev1.LabelTopologyZone, Values: []string{z}}},
			})
		}
		return c
	}
	out := []runtime.Object{class("anywhere", wait), class("zone-b", wait, "b"), class("zones-a-c", wait, "a", "c"), class("at-once", immediate)}
	for i, limit := range []int32{0, 1, 2} { // nodes from the fourth on report no limit
		name := fmt.Sprintf("node-%d", i)
		out = append(out, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: ebsDriver, NodeID: name, Allocatable: &storagev1.VolumeNodeResources{Count: &limit}}},
		}})
	}
	for _, ns := range namespaces() {
		for _, c := range claimKinds() {
			out = append(out, c.objects(ns.Name)...)
		}
	}
	return out
}

const ebsDriver = "ebs.csi.aws.com"

// claimKind is a claim of that name in each namespace; bound to a volume with the affinity or labels, or not bound.
type claimKind struct {
	name  string
	class string
	bound bool
	zones []string
	label string // the value of a zone label on the volume, as volumes had before there was node affinity
}

func claimKinds() []claimKind {
	return []claimKind{
		{name: "bound-a", class: "anywhere", bound: true, zones: []string{"a"}},
		{name: "bound-b", class: "anywhere", bound: true, zones: []string{"b"}},
		{name: "bound-b-or-c", class: "anywhere", bound: true, zones: []string{"b", "c"}},
		{name: "bound-anywhere", class: "anywhere", bound: true},
		{name: "bound-anywhere-2", class: "anywhere", bound: true},
		{name: "bound-label-a", class: "anywhere", bound: true, label: "a"},
		{name: "bound-label-a-b", class: "anywhere", bound: true, label: "a__b"},
		{name: "waits", class: "anywhere"},
		{name: "waits-zone-b", class: "zone-b"},
		{name: "waits-zones-a-c", class: "zones-a-c"},
		{name: "unbound-at-once", class: "at-once"},
		{name: "unbound-lost-class", class: "no-such-class"},
	}
}

func (k claimKind) objects(namespace string) []runtime.Object {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: k.name, UID: types.UID(namespace + k.name)}}
	c.Spec = corev1.PersistentVolumeClaimSpec{
		StorageClassName: &k.class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	c.Status.Phase = corev1.ClaimPending
	if !k.bound {
		return []runtime.Object{c}
	}
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + k.name}}
	v.Spec = corev1.PersistentVolumeSpec{
		StorageClassName: k.class, AccessModes: c.Spec.AccessModes, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: ebsDriver, VolumeHandle: v.Name}},
		ClaimRef:               &corev1.ObjectReference{Namespace: namespace, Name: k.name, UID: c.UID},
	}
	v.Status.Phase = corev1.VolumeBound
	if len(k.zones) > 0 {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}}
		for _, z := range k.zones {
			v.Spec.NodeAffinity.Required.NodeSelectorTerms = append(v.Spec.NodeAffinity.Required.NodeSelectorTerms, corev1.NodeSelectorTerm{
				MatchExpressions: []corev1.NodeSelectorRequirement{builder.In(corev1.LabelTopologyZone, z)},
			})
		}
	}
	if k.label != "" {
		v.Labels = map[string]string{corev1.LabelTopologyZone: k.label}
	}
	c.Spec.VolumeName, c.Status.Phase = v.Name, corev1.ClaimBound
	c.Annotations = map[string]string{volume.AnnBindCompleted: "yes"}
	return []runtime.Object{c, v}
}

// volumes is a few nodes, pods with volumes on them, and a pod with volumes.
func (m *maker) volumes() world {
	w := world{}
	for i := range 2 + m.IntN(4) {
		n := m.node(i)
		if !m.one(4) {
			n.Spec.Taints, n.Status.Allocatable = nil, roomy()
		}
		w.nodes = append(w.nodes, n)
	}
	used := map[string]bool{} // a volume in use counts once on its node, which the planner does not try to know
	for i := range m.IntN(5) {
		p := m.base(fmt.Sprintf("bound-%d", i)).On(pick(m, w.nodes...).Name).Obj()
		for range m.IntN(3) {
			m.claim(p, used)
		}
		w.bound = append(w.bound, p)
	}
	w.pod = m.pending()
	if !m.one(3) {
		w.pod = m.base("pending").Obj()
	}
	for range 1 + m.IntN(3) {
		m.claim(w.pod, used)
	}
	return w
}

// claim adds a claim that nobody uses yet.
func (m *maker) claim(p *corev1.Pod, used map[string]bool) {
	kinds := claimKinds()
	if m.one(12) {
		kinds = append(kinds, claimKind{name: "not-there"})
	} else if !m.one(4) {
		kinds = kinds[:10] // those that can be used
	}
	k := pick(m, kinds...)
	if key := p.Namespace + "/" + k.name; !used[key] {
		used[key] = true
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: k.name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: k.name},
		}})
	}
}

func roomy() corev1.ResourceList {
	return builder.Node("").CPU("99").Memory("999Gi").Resource(gpu, "9").Resource(corev1.ResourceEphemeralStorage, "1Ti").Obj().Status.Allocatable
}
