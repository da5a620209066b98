// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	nodelisters "k8s.io/client-go/listers/node/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Source is where a Builder reads from. All of it is local: informer caches and in-memory snapshots.
type Source struct {
	Pods                   corelisters.PodLister
	Nodes                  corelisters.NodeLister
	Namespaces             corelisters.NamespaceLister
	LimitRanges            corelisters.LimitRangeLister
	PersistentVolumes      corelisters.PersistentVolumeLister
	PersistentVolumeClaims corelisters.PersistentVolumeClaimLister
	DaemonSets             appslisters.DaemonSetLister
	StorageClasses         storagelisters.StorageClassLister
	// CSINodes say how many volumes a node can attach, RuntimeClasses what they add to a pod. Either may be nil: then nothing is
	// known of limits, and daemonset pods are counted without what their class adds.
	CSINodes       storagelisters.CSINodeLister
	RuntimeClasses nodelisters.RuntimeClassLister
	// Karpenter reads NodePools, NodeClaims and EC2NodeClasses from a cache.
	Karpenter client.Reader
	// Catalog is what a class can buy, nil while that is not known.
	Catalog func(*v1.EC2NodeClass) *capacity.Catalog
	// Available are the offerings of a catalogue EC2 is not known to be out of.
	Available func(*capacity.Catalog) capacity.Set
	// Reserved is how many more instances a capacity reservation takes; nil if reservations are not counted.
	Reserved func(reservation string) int
}

// Builder makes views. It is safe for concurrent use.
type Builder struct {
	src  Source
	memo *memo
}

// New returns a builder over the source.
func New(src Source) *Builder { return &Builder{src: src, memo: newMemo()} }

// Pending is what the caches may not show yet.
type Pending struct {
	// Claims were created a moment ago.
	Claims []*karpv1.NodeClaim
	// Reserved are the pods each claim (by name) was bought for and that are not bound yet.
	Reserved map[string][]*corev1.Pod
}

// Pod converts one pod. A pod that has its node is converted as what it is there: for a pod that is to move, pass a copy
// without spec.nodeName, which needs its volumes to be reached and attached again.
func (b *Builder) Pod(pod *corev1.Pod) *capacity.Pod {
	out := &capacity.Pod{
		NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name},
		UID:            pod.UID,
		Class:          b.memo.class(pod, b.sign),
	}
	if pod.Spec.Priority != nil {
		out.Priority = *pod.Spec.Priority
	}
	out.NeverPreempts = pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == corev1.PreemptNever
	return out
}

// Build makes a view of the cluster as the caches and pending show it. Errors come from a cache that cannot be read.
func (b *Builder) Build(ctx context.Context, pending Pending) (*capacity.View, error) {
	// 1. Pools with what they can buy.
	pools, catalogs, err := b.pools(ctx)
	if err != nil {
		return nil, err
	}
	// 2. Nodes and claims, joined by provider ID.
	claims, err := b.claims(ctx, pending.Claims)
	if err != nil {
		return nil, err
	}
	nodes, err := b.src.Nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing Nodes: %w", err)
	}
	j := joiner{b: b, catalogs: catalogs, pools: pools, reserved: pending.Reserved, placed: map[types.UID]bool{}}
	if j.bound, err = b.bound(); err != nil {
		return nil, err
	}
	for _, pods := range j.bound {
		for _, p := range pods {
			j.placed[p.UID] = true
		}
	}
	view := &capacity.View{Pools: pools, Nodes: j.join(nodes, claims)}
	slices.SortFunc(view.Nodes, func(a, b *capacity.Node) int { return strings.Compare(a.ID(), b.ID()) })
	// 3. What each pool has used of its limits.
	j.usage()
	return view, nil
}

// bound groups the pods that hold a place by node name. Pods that have finished hold none.
func (b *Builder) bound() (map[string][]*corev1.Pod, error) {
	pods, err := b.src.Pods.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing Pods: %w", err)
	}
	out := map[string][]*corev1.Pod{}
	for _, p := range pods {
		if p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			out[p.Spec.NodeName] = append(out[p.Spec.NodeName], p)
		}
	}
	if b.memo.size() > 2*len(pods)+1000 {
		alive := make(map[types.UID]bool, len(pods))
		for _, p := range pods {
			alive[p.UID] = true
		}
		b.memo.keep(func(uid types.UID) bool { return alive[uid] })
	}
	return out, nil
}

// namespaces lists the names of the namespaces a selector matches.
func (b *Builder) namespaces(sel labels.Selector) []string {
	list, err := b.src.Namespaces.List(sel)
	if err != nil {
		return nil
	}
	out := make([]string, 0, len(list))
	for _, ns := range list {
		out = append(out, ns.Name)
	}
	return out
}
