// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// cluster is the objects that become the nodes of a view, and the nodes made of them so far. Every change notes which of
// the latter it concerns, so that a view costs what has changed since the last one. Safe for concurrent use.
type cluster struct {
	mu sync.Mutex
	// The objects. provider IDs lead from claims to nodes and back.
	nodes    map[string]*corev1.Node
	joined   map[string]string // provider ID → node name
	claims   map[string]*karpv1.NodeClaim
	launched map[string]string                    // provider ID → claim name
	pods     map[string]map[types.UID]*corev1.Pod // by node name: those that hold a place
	where    map[types.UID]string                 // the node of each of them
	recent   map[string]*karpv1.NodeClaim         // claims only the caller of the last view knew
	reserved map[string][]*corev1.Pod             // by claim name: what was reserved in the last view
	// The nodes of the last view.
	slots    map[slotKey]*slot
	order    []*slot // by ID
	dirty    map[slotKey]bool
	versions map[string]poolVersion
}

// slotKey names a node of the view by what it was made of: a claim, or a Node that no claim stands for.
type slotKey struct {
	claim bool
	name  string
}

func newCluster() *cluster {
	return &cluster{
		nodes: map[string]*corev1.Node{}, joined: map[string]string{}, claims: map[string]*karpv1.NodeClaim{}, launched: map[string]string{},
		pods: map[string]map[types.UID]*corev1.Pod{}, where: map[types.UID]string{}, slots: map[slotKey]*slot{}, dirty: map[slotKey]bool{},
	}
}

// touch notes that what is known of a node has changed: its own slot and that of its claim. The lock is held.
func (c *cluster) touch(node string) {
	c.dirty[slotKey{name: node}] = true
	if n := c.nodes[node]; n != nil && n.Spec.ProviderID != "" {
		if claim := c.launched[n.Spec.ProviderID]; claim != "" {
			c.dirty[slotKey{claim: true, name: claim}] = true
		}
	}
}

// node takes note of a Node that was added (old is nil), changed, or deleted (now is nil).
func (c *cluster) node(old, now *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old != nil {
		c.touch(old.Name)
		if c.joined[old.Spec.ProviderID] == old.Name {
			delete(c.joined, old.Spec.ProviderID)
		}
		if now == nil {
			delete(c.nodes, old.Name)
		}
	}
	if now != nil {
		c.nodes[now.Name] = now
		if now.Spec.ProviderID != "" {
			c.joined[now.Spec.ProviderID] = now.Name
		}
		c.touch(now.Name)
	}
}

// claim takes note of a NodeClaim that was added (old is nil), changed, or deleted (now is nil).
func (c *cluster) claim(old, now *karpv1.NodeClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old != nil {
		c.dirty[slotKey{claim: true, name: old.Name}] = true
		c.dirty[slotKey{name: c.joined[old.Status.ProviderID]}] = true
		if c.launched[old.Status.ProviderID] == old.Name {
			delete(c.launched, old.Status.ProviderID)
		}
		if now == nil {
			delete(c.claims, old.Name)
		}
	}
	if now != nil {
		c.claims[now.Name] = now
		c.dirty[slotKey{claim: true, name: now.Name}] = true
		if now.Status.ProviderID != "" {
			c.launched[now.Status.ProviderID] = now.Name
			c.dirty[slotKey{name: c.joined[now.Status.ProviderID]}] = true
		}
	}
}

// pod takes note of a pod that was added (old is nil), changed, or deleted (now is nil).
func (c *cluster) pod(old, now *corev1.Pod) {
	had, has := old != nil && holdsPlace(old), now != nil && holdsPlace(now)
	if !had && !has {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if had && (!has || old.Spec.NodeName != now.Spec.NodeName || old.UID != now.UID) {
		c.remove(old)
	}
	if !has {
		return
	}
	on := c.pods[now.Spec.NodeName]
	if on == nil {
		on = map[types.UID]*corev1.Pod{}
		c.pods[now.Spec.NodeName] = on
	}
	before := on[now.UID]
	on[now.UID], c.where[now.UID] = now, now.Spec.NodeName
	if before == nil || countsDifferently(before, now) {
		c.touch(now.Spec.NodeName)
	}
}

func (c *cluster) remove(p *corev1.Pod) {
	on := c.pods[p.Spec.NodeName]
	if on[p.UID] == nil {
		return
	}
	delete(on, p.UID)
	delete(c.where, p.UID)
	if len(on) == 0 {
		delete(c.pods, p.Spec.NodeName)
	}
	c.touch(p.Spec.NodeName)
}

// namespaces notes that namespaces have come, gone or got other labels: pods whose terms select namespaces are converted again.
func (c *cluster) namespaces() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, s := range c.slots {
		if !s.stable {
			c.dirty[key] = true
		}
	}
}

// attachLimits notes that what a node can attach has changed.
func (c *cluster) attachLimits(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.touch(node)
}

// holding counts the pods that have a node.
func (c *cluster) holding() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.where)
}

// holdsPlace reports whether the pod takes room on a node. Pods that have finished take none.
func holdsPlace(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// countsDifferently reports whether two states of one pod on its node may differ in anything a view shows. Most updates of
// running pods are of their conditions and do not.
func countsDifferently(a, b *corev1.Pod) bool {
	return a.Generation != b.Generation || (a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil) || !maps.Equal(a.Labels, b.Labels) || resized(a, b)
}

// resized reports whether the resources the kubelet reports of the pod have changed.
func resized(a, b *corev1.Pod) bool {
	if !equality.Semantic.DeepEqual(a.Status.Resources, b.Status.Resources) || !equality.Semantic.DeepEqual(a.Status.AllocatedResources, b.Status.AllocatedResources) ||
		resizeState(a) != resizeState(b) {
		return true
	}
	return containersResized(a.Status.ContainerStatuses, b.Status.ContainerStatuses) || containersResized(a.Status.InitContainerStatuses, b.Status.InitContainerStatuses)
}

func containersResized(a, b []corev1.ContainerStatus) bool {
	if len(a) != len(b) {
		return true
	}
	for i := range a {
		if a[i].Name != b[i].Name || !equality.Semantic.DeepEqual(a[i].Resources, b[i].Resources) || !equality.Semantic.DeepEqual(a[i].AllocatedResources, b[i].AllocatedResources) {
			return true
		}
	}
	return false
}

func resizeState(p *corev1.Pod) string {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == corev1.PodResizePending {
			return p.Status.Conditions[i].Reason
		}
	}
	return ""
}
