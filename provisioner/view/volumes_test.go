// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

const zoneLabel = corev1.LabelTopologyZone

// volume is a persistent volume reachable where one of the requirements holds, anywhere without requirements.
func volume(name string, alternatives ...corev1.NodeSelectorRequirement) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, a := range alternatives {
		if pv.Spec.NodeAffinity == nil {
			pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}}
		}
		r := pv.Spec.NodeAffinity.Required
		r.NodeSelectorTerms = append(r.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{a}})
	}
	return pv
}

// claim is a volume claim in namespace default, bound to a volume or of a storage class.
func claim(name, volume, class string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	c.Spec.VolumeName = volume
	if class != "" {
		c.Spec.StorageClassName = &class
	}
	return c
}

func storageClass(name string, zones ...string) *storagev1.StorageClass {
	sc := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, z := range zones {
		sc.AllowedTopologies = append(sc.AllowedTopologies, corev1.TopologySelectorTerm{
			MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: zoneLabel, Values: []string{z}}},
		})
	}
	return sc
}

func TestVolumesConstrainTheNode(t *testing.T) {
	legacy := volume("legacy")
	legacy.Labels = map[string]string{corev1.LabelFailureDomainBetaZone: "a__b"}
	nowhere := volume("pv", builder.Requirement(zoneLabel, corev1.NodeSelectorOpGt, "many"))
	ephemeral := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	}
	for name, tc := range map[string]struct {
		pod     *builder.PodBuilder
		change  func(*corev1.Pod)
		objects []runtime.Object
		want    []string
	}{
		"no volume":            {pod: builder.Pod("p"), want: []string{""}},
		"a claim not there":    {pod: builder.Pod("p").Volume("data"), want: []string{""}},
		"a volume of one zone": {pod: builder.Pod("p").Volume("data"), objects: []runtime.Object{claim("data", "pv", ""), volume("pv", builder.In(zoneLabel, "a"))}, want: []string{"topology.kubernetes.io/zone In [a]"}},
		"a volume that can be attached anywhere": {
			pod: builder.Pod("p").Volume("data"), objects: []runtime.Object{claim("data", "pv", ""), volume("pv")}, want: []string{""},
		},
		"alternatives are ORed": {
			pod:     builder.Pod("p").Volume("data"),
			objects: []runtime.Object{claim("data", "pv", ""), volume("pv", builder.In("topology.ebs.csi.aws.com/zone", "a"), builder.In("rack", "7"))},
			want:    []string{"topology.kubernetes.io/zone In [a]", "rack In [7]"},
		},
		"allowed topologies of a class": {
			pod: builder.Pod("p").Volume("data"), objects: []runtime.Object{claim("data", "", "gp3"), storageClass("gp3", "a", "b")},
			want: []string{"topology.kubernetes.io/zone In [a]", "topology.kubernetes.io/zone In [b]"},
		},
		"a class without topologies": {
			pod: builder.Pod("p").Volume("data"), objects: []runtime.Object{claim("data", "", "gp3"), storageClass("gp3")}, want: []string{""},
		},
		"two volumes meet in one zone": {
			pod: builder.Pod("p").Volume("one").Volume("two"),
			objects: []runtime.Object{
				claim("one", "", "ab"), storageClass("ab", "a", "b"), claim("two", "", "bc"), storageClass("bc", "b", "c"),
			},
			want: []string{"topology.kubernetes.io/zone In [b]"},
		},
		"two volumes that never meet": {
			pod: builder.Pod("p").Volume("one").Volume("two"),
			objects: []runtime.Object{
				claim("one", "pv-a", ""), volume("pv-a", builder.In(zoneLabel, "a")), claim("two", "pv-b", ""), volume("pv-b", builder.In(zoneLabel, "b")),
			},
			want: []string{"topology.kubernetes.io/zone with no possible value"},
		},
		"a volume that can be attached nowhere": {
			pod: builder.Pod("p").Volume("data"), objects: []runtime.Object{claim("data", "pv", ""), nowhere},
			want: []string{"spec.volumes with no possible value"},
		},
		"each affinity term with each alternative": {
			pod:     builder.Pod("p").Volume("data").NodeAffinity(builder.In("x", "1")).NodeAffinity(builder.In("x", "2")),
			objects: []runtime.Object{claim("data", "", "gp3"), storageClass("gp3", "a", "b")},
			want: []string{
				"topology.kubernetes.io/zone In [a], x In [1]", "topology.kubernetes.io/zone In [b], x In [1]",
				"topology.kubernetes.io/zone In [a], x In [2]", "topology.kubernetes.io/zone In [b], x In [2]",
			},
		},
		"zone labels of an old volume": {
			pod: builder.Pod("p").Volume("data"), objects: []runtime.Object{claim("data", "legacy", ""), legacy}, want: []string{"topology.kubernetes.io/zone In [a b]"},
		},
		"an ephemeral volume has a claim named after pod and volume": {
			pod: builder.Pod("p"), change: ephemeral,
			objects: []runtime.Object{claim("p-scratch", "pv", ""), volume("pv", builder.In(zoneLabel, "a"))},
			want:    []string{"topology.kubernetes.io/zone In [a]"},
		},
		"a bound pod is not constrained any more": {
			pod: builder.Pod("p").Volume("data").On("n1"), objects: []runtime.Object{claim("data", "pv", ""), volume("pv", builder.In(zoneLabel, "a"))}, want: []string{""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := tc.pod.Obj()
			if tc.change != nil {
				tc.change(pod)
			}
			if diff := cmp.Diff(tc.want, shapeOf(view.New(source.New(tc.objects...).Source()).Pod(pod).Class).Terms); diff != "" {
				t.Errorf("terms (-want +got):\n%s", diff)
			}
		})
	}
}

// TestManyVolumesStayFew checks that alternatives of many volumes do not multiply.
func TestManyVolumesStayFew(t *testing.T) {
	pod := builder.Pod("p")
	objects := []runtime.Object{storageClass("gp3", "a", "b", "c")}
	for i := range 24 {
		name := fmt.Sprintf("data-%d", i)
		pod.Volume(name)
		objects = append(objects, claim(name, "", "gp3"))
	}
	got := shapeOf(view.New(source.New(objects...).Source()).Pod(pod.Obj()).Class).Terms
	if diff := cmp.Diff([]string{zoneLabel + " In [a]", zoneLabel + " In [b]", zoneLabel + " In [c]"}, got); diff != "" {
		t.Errorf("terms (-want +got):\n%s", diff)
	}
}

// csi is a volume of a CSI driver, reachable from everywhere.
func csi(name, driver string) *corev1.PersistentVolume {
	pv := volume(name)
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "handle-" + name}
	return pv
}

// TestAttachLimits checks what is counted against the volumes a node can attach: each volume once however many pods share
// it, by driver, in-tree EBS volumes with the EBS driver's.
func TestAttachLimits(t *testing.T) {
	const ebs = "ebs.csi.aws.com"
	inTree := volume("old")
	inTree.Spec.AWSElasticBlockStore = &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}
	provisioner := storageClass("gp3")
	provisioner.Provisioner = ebs
	limited := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
		{Name: ebs, NodeID: "i-1", Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(25))}}, {Name: "efs.csi.aws.com", NodeID: "i-1"},
	}}}
	objects := []runtime.Object{
		csi("pv-1", ebs), csi("pv-2", ebs), csi("shared", ebs), csi("files", "efs.csi.aws.com"), inTree, provisioner, limited,
		claim("one", "pv-1", ""), claim("two", "pv-2", ""), claim("shared", "shared", ""), claim("files", "files", ""), claim("old", "old", ""), claim("new", "", "gp3"),
		builder.Node("n1").CPU("4").Obj(), builder.Node("n2").CPU("4").Obj(),
		builder.Pod("a").UID("a").Volume("one").Volume("shared").On("n1").Obj(),
		builder.Pod("b").UID("b").Volume("shared").Volume("files").Volume("old").On("n1").Obj(),
	}
	src := source.New(objects...).Source()
	v, err := view.New(src).Build(t.Context(), view.Pending{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, n := range v.Nodes {
		got[n.Name] = fmt.Sprintf("%s, used %s", n.Allocatable, n.Used)
	}
	want := map[string]string{
		"n1": "cpu=4 pods=110 volumes/ebs.csi.aws.com=25, used pods=2 volumes/ebs.csi.aws.com=3 volumes/efs.csi.aws.com=1",
		"n2": "cpu=4 pods=110, used ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	asks := view.New(src).Pod(builder.Pod("p").UID("p").Volume("new").Volume("two").Volume("files").Obj()).Class.Requests
	if want := "pods=1 volumes/ebs.csi.aws.com=2 volumes/efs.csi.aws.com=1"; asks.String() != want {
		t.Errorf("requests = %q, want %q", asks, want)
	}
}

// TestEphemeralVolumeBeforeItsClaim checks that a generic ephemeral volume counts before its controller has made the claim.
func TestEphemeralVolumeBeforeItsClaim(t *testing.T) {
	waits := storagev1.VolumeBindingWaitForFirstConsumer
	sc := storageClass("gp3", "b")
	sc.Provisioner, sc.VolumeBindingMode = "ebs.csi.aws.com", &waits
	pod := builder.Pod("p").Obj()
	pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("gp3")}},
	}}}}
	c := view.New(source.New(sc).Source()).Pod(pod).Class
	if got, want := shapeOf(c).Terms, []string{zoneLabel + " In [b]"}; !cmp.Equal(got, want) || c.Unsupported != "" {
		t.Errorf("terms = %v, unsupported %q, want %v", got, c.Unsupported, want)
	}
	if got, want := c.Requests.String(), "pods=1 volumes/ebs.csi.aws.com=1"; got != want {
		t.Errorf("requests = %q, want %q", got, want)
	}
	if got := shapeOf(&capacity.Class{Terms: c.NodeTerms}).Terms; !cmp.Equal(got, []string{""}) {
		t.Errorf("terms without volumes = %v, want none", got)
	}
}
