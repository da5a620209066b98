// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"fmt"
	"sync"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// Admission foretells what admission makes of daemonset pods; nil if it makes nothing.
	Admission Admission
	// Karpenter reads NodePools, NodeClaims and EC2NodeClasses from a cache.
	Karpenter client.Reader
	// Catalog is what a class can buy, nil while that is not known.
	Catalog func(*v1.EC2NodeClass) *capacity.Catalog
	// Available are the offerings of a catalogue EC2 is not known to be out of.
	Available func(*capacity.Catalog) capacity.Set
	// Rival says who but Slipway acts on pools whose class is not of Slipway's own group, empty if nobody; nil is nobody ever.
	Rival func() string
	// Reserved is how many more instances a capacity reservation takes; nil if reservations are not counted.
	Reserved func(reservation string) int
}

// Admission foretells what admission makes of pods that do not exist yet.
type Admission interface {
	// Admit changes the pod as it is changed when the controller creates it.
	Admit(pod *corev1.Pod, controller *metav1.OwnerReference)
	// Version changes when what Admit does to pods of the namespace may.
	Version(namespace string) string
}

// Builder makes views. It is safe for concurrent use.
type Builder struct {
	src  Source
	memo *memo
	// followed is the cluster as events have shown it, nil until Follow.
	followed *cluster
	synced   func() bool

	mu   sync.Mutex
	made map[*appsv1.DaemonSet]daemon // what DaemonSets were converted to
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
	}
	out.Class, _ = b.memo.class(pod, b.sign)
	if pod.Spec.Priority != nil {
		out.Priority = *pod.Spec.Priority
	}
	out.NeverPreempts = pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == corev1.PreemptNever
	return out
}

// Build makes a view of the cluster as the caches and pending show it. A builder that follows informers converts what has
// changed since its last view; any other starts anew from lists. Errors come from a cache that cannot be read.
func (b *Builder) Build(ctx context.Context, pending Pending) (*capacity.View, error) {
	// 1. Pools with what they can buy.
	pools, err := b.pools(ctx)
	if err != nil {
		return nil, err
	}
	// 2. Nodes and claims, joined by provider ID.
	c := b.followed
	if c == nil || !b.synced() {
		if c, err = b.load(ctx); err != nil {
			return nil, err
		}
	}
	view := &capacity.View{Pools: pools.list, Nodes: c.view(&converter{b: b, pools: pools}, pending)}
	// 3. What each pool has used of its limits.
	for _, n := range view.Nodes {
		if p := pools.byName[n.Pool]; p != nil && n.Claim != "" {
			p.Usage = p.Usage.Add(n.Capacity)
			p.Nodes++
		}
	}
	b.forget(c.holding())
	return view, nil
}

// load reads the cluster from the listers.
func (b *Builder) load(ctx context.Context) (*cluster, error) {
	c := newCluster()
	nodes, err := b.src.Nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing Nodes: %w", err)
	}
	for _, n := range nodes {
		c.node(nil, n)
	}
	var list karpv1.NodeClaimList
	if err := b.src.Karpenter.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	for i := range list.Items {
		c.claim(nil, &list.Items[i])
	}
	pods, err := b.src.Pods.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing Pods: %w", err)
	}
	for _, p := range pods {
		c.pod(nil, p)
	}
	return c, nil
}

// forget drops what is remembered of pods that are gone, when that has become most of it; holding is how many pods have a
// node.
func (b *Builder) forget(holding int) {
	if b.memo.size() <= 2*holding+1000 {
		return
	}
	pods, err := b.src.Pods.List(labels.Everything())
	if err != nil {
		return // the memory is larger for a while
	}
	alive := make(map[types.UID]bool, len(pods))
	for _, p := range pods {
		alive[p.UID] = true
	}
	b.memo.keep(func(uid types.UID) bool { return alive[uid] })
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
