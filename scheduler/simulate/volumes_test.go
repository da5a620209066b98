// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

const ebs = "ebs.csi.aws.com"

// storageClass waits for the first consumer; local classes have no provisioner, so that volumes must be there already.
func storageClass(name, provisioner string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)}
}

func claim(name, class, volumeName string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	c.Spec = corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, VolumeName: volumeName, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	if volumeName != "" {
		c.Status.Phase = corev1.ClaimBound
		c.Annotations = map[string]string{volume.AnnBindCompleted: "yes"}
	}
	return c
}

func persistentVolume(name, class, zone string, bound *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	v.Spec = corev1.PersistentVolumeSpec{
		StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: ebs, VolumeHandle: name}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: zoneKey, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
		}}}},
	}
	v.Status.Phase = corev1.VolumeAvailable
	if bound != nil {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: bound.Namespace, Name: bound.Name, UID: bound.UID}
		v.Status.Phase = corev1.VolumeBound
	}
	return v
}

// volumes are n claims data-0 …, each bound to a volume of its own in zone a.
func volumes(n int) []runtime.Object {
	out := []runtime.Object{storageClass("gp3", ebs)}
	for i := range n {
		c := claim(fmt.Sprintf("data-%d", i), "gp3", fmt.Sprintf("pv-%d", i))
		out = append(out, c, persistentVolume(c.Spec.VolumeName, "gp3", "a", c))
	}
	return out
}

func withClaims(claims ...string) func(string) *corev1.Pod {
	return func(name string) *corev1.Pod {
		w := pod(name, "db")
		for _, c := range claims {
			w.PVC(c)
		}
		return w.Obj()
	}
}

// users are pods p-0 …, each with the claim of its number.
func users(n int) []*corev1.Pod {
	out := make([]*corev1.Pod, n)
	for i := range out {
		out[i] = withClaims(fmt.Sprintf("data-%d", i))(fmt.Sprintf("p-%d", i))
	}
	return out
}

func csiNode(node, driver string, limit int32) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: storagev1.CSINodeSpec{
		Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: node, Allocatable: &storagev1.VolumeNodeResources{Count: &limit}}},
	}}
}

func kind(n *corev1.Node, instanceType string) *corev1.Node {
	n.Labels[corev1.LabelInstanceTypeStable] = instanceType
	return n
}

func TestVerifyVolumes(t *testing.T) {
	for _, tc := range []struct {
		name       string
		cluster    []runtime.Object
		candidates []planned
		want       []verdict
	}{
		{
			name:       "volume in another zone",
			cluster:    volumes(1),
			candidates: []planned{{Node: node("n1", "b", "8"), Pods: users(1)}},
			want:       []verdict{{"p-0", "n1", names.VolumeBinding}},
		},
		{
			name:       "no limit known",
			cluster:    volumes(3),
			candidates: []planned{{Node: node("n1", "a", "8"), Pods: users(3)}},
		},
		{
			name:       "the template's attach limit",
			cluster:    volumes(3),
			candidates: []planned{{Node: node("n1", "a", "8"), Limits: map[string]int32{ebs: 2}, Pods: users(3)}},
			want:       []verdict{{"p-2", "n1", names.NodeVolumeLimits}},
		},
		{
			name: "the least limit of the cluster's nodes of the type, not of others",
			cluster: append(volumes(3),
				kind(node("old-1", "b", "1"), "m5.large"), csiNode("old-1", ebs, 2), kind(node("old-2", "b", "1"), "m5.large"), csiNode("old-2", ebs, 3),
				kind(node("old-3", "b", "1"), "t3.small"), csiNode("old-3", ebs, 1), csiNode("gone", ebs, 0)),
			candidates: []planned{{Node: kind(node("n1", "a", "8"), "m5.large"), Pods: users(3)}},
			want:       []verdict{{"p-2", "n1", names.NodeVolumeLimits}},
		},
		{
			name:       "what the template says comes first",
			cluster:    append(volumes(3), kind(node("old-1", "b", "1"), "m5.large"), csiNode("old-1", ebs, 1)),
			candidates: []planned{{Node: kind(node("n1", "a", "8"), "m5.large"), Limits: map[string]int32{ebs: 3}, Pods: users(3)}},
		},
		{
			name:       "present pods hold volumes, and one volume counts once",
			cluster:    volumes(3),
			candidates: []planned{{Node: node("n1", "a", "8"), Limits: map[string]int32{ebs: 2}, Present: users(2), Pods: []*corev1.Pod{withClaims("data-1")("same"), withClaims("data-2")("third")}}},
			want:       []verdict{{"third", "n1", names.NodeVolumeLimits}},
		},
		{
			name:       "a node of the cluster has its own CSINode",
			cluster:    append(volumes(2), node("old", "a", "8"), csiNode("old", ebs, 1)),
			candidates: []planned{{Node: node("old", "a", "8"), Existing: true, Pods: users(2)}},
			want:       []verdict{{"p-1", "old", names.NodeVolumeLimits}},
		},
		{
			name: "a driver that has to be on the node will be on a new one",
			cluster: append(volumes(1), &storagev1.CSIDriver{
				ObjectMeta: metav1.ObjectMeta{Name: ebs}, Spec: storagev1.CSIDriverSpec{PreventPodSchedulingIfMissing: new(true)},
			}),
			candidates: []planned{{Node: node("n1", "a", "8"), Pods: users(1)}},
		},
		{
			name: "two planned pods cannot take the one volume that is there",
			cluster: []runtime.Object{
				storageClass("local", "kubernetes.io/no-provisioner"), persistentVolume("pv", "local", "a", nil), claim("one", "local", ""), claim("two", "local", ""),
			},
			candidates: []planned{{Node: node("n1", "a", "8"), Pods: []*corev1.Pod{withClaims("one")("p"), withClaims("two")("q")}}},
			want:       []verdict{{"q", "n1", names.VolumeBinding}},
		},
		{
			name:    "a volume that the first pod will have made is where that pod is",
			cluster: []runtime.Object{storageClass("gp3", ebs), claim("one", "gp3", "")},
			candidates: []planned{
				{Node: node("n1", "a", "8"), Pods: []*corev1.Pod{withClaims("one")("p"), withClaims("one")("q")}}, {Node: node("n2", "b", "8"), Pods: []*corev1.Pod{withClaims("one")("r")}},
			},
			want: []verdict{{"r", "n2", names.VolumeBinding}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, nil, nil, tc.cluster...)
			for range 2 { // a verification leaves nothing behind
				if diff := cmp.Diff(tc.want, verdicts(b.verify(t, tc.candidates))); diff != "" {
					t.Errorf("rejections (-want +got):\n%s", diff)
				}
			}
		})
	}
}
