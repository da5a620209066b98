// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// use is CPU in millicores and memory in bytes.
type use struct{ cpu, memory int64 }

func (u *use) add(o use, sign int64) {
	u.cpu += sign * o.cpu
	u.memory += sign * o.memory
}

func useOf(list corev1.ResourceList) use { return use{list.Cpu().MilliValue(), list.Memory().Value()} }

// pod is what is kept of a pod.
type pod struct {
	name, node string // name with namespace
	asks       use
	since      time.Time // of its creation
	nominated  string
	why        string
}

type node struct {
	name, pool, instanceType, zone, capacityType string
	has                                          use
	ready, cordoned, disrupted                   bool
	since                                        time.Time
}

type claim struct {
	name, pool, node, instanceType string
	price                          float64
	priced                         bool
	since                          time.Time
	launched, registered, usable   bool
	deleting                       time.Time
	replaces, reason               string
}

// World keeps the sums up. Its methods may be called by several goroutines.
type World struct {
	mu      sync.Mutex
	changes uint64
	pods    map[types.UID]pod
	nodes   map[string]node
	claims  map[string]claim
	pools   map[string]bool // whether each is ready
	used    map[string]use  // by node
	on      map[string]int  // pods by node
	waiting map[types.UID]pod
}

// NewWorld has nothing in it.
func NewWorld() *World {
	return &World{
		pods: map[types.UID]pod{}, nodes: map[string]node{}, claims: map[string]claim{}, pools: map[string]bool{},
		used: map[string]use{}, on: map[string]int{}, waiting: map[types.UID]pod{},
	}
}

// Changes grows with every change that can be seen.
func (w *World) Changes() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changes
}

// Pod notes a pod as it is now.
func (w *World) Pod(p *corev1.Pod) {
	now := pod{
		name: p.Namespace + "/" + p.Name, node: p.Spec.NodeName, since: p.CreationTimestamp.Time,
		asks: useOf(resource.PodRequests(p, resource.PodResourcesOptions{})), nominated: p.Status.NominatedNodeName,
	}
	if p.Spec.NodeName == "" {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				now.why = c.Message
			}
		}
	}
	over := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	w.mu.Lock()
	defer w.mu.Unlock()
	if old, ok := w.pods[p.UID]; ok && old == now && !over {
		return
	}
	w.forget(p.UID)
	w.changes++
	if over {
		return
	}
	w.pods[p.UID] = now
	if now.node == "" {
		w.waiting[p.UID] = now
		return
	}
	sum := w.used[now.node]
	sum.add(now.asks, 1)
	w.used[now.node] = sum
	w.on[now.node]++
}

// NoPod notes that a pod is gone.
func (w *World) NoPod(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(uid)
	w.changes++
}

func (w *World) forget(uid types.UID) {
	old, ok := w.pods[uid]
	if !ok {
		return
	}
	delete(w.pods, uid)
	delete(w.waiting, uid)
	if old.node == "" {
		return
	}
	sum := w.used[old.node]
	sum.add(old.asks, -1)
	w.used[old.node] = sum
	if w.on[old.node]--; w.on[old.node] == 0 {
		delete(w.on, old.node)
		delete(w.used, old.node)
	}
}

// Node notes a node as it is now.
func (w *World) Node(n *corev1.Node) {
	now := node{
		name: n.Name, pool: n.Labels[karpv1.NodePoolLabelKey], instanceType: n.Labels[corev1.LabelInstanceTypeStable],
		zone: n.Labels[corev1.LabelTopologyZone], capacityType: n.Labels[karpv1.CapacityTypeLabelKey],
		has: useOf(n.Status.Allocatable), cordoned: n.Spec.Unschedulable, since: n.CreationTimestamp.Time,
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			now.ready = c.Status == corev1.ConditionTrue
		}
	}
	for _, t := range n.Spec.Taints {
		now.disrupted = now.disrupted || t.Key == karpv1.DisruptedTaintKey
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.nodes[n.Name] != now {
		w.nodes[n.Name] = now
		w.changes++
	}
}

// NoNode notes that a node is gone.
func (w *World) NoNode(name string) { drop(w, w.nodes, name) }

// Claim notes a NodeClaim as it is now.
func (w *World) Claim(c *karpv1.NodeClaim) {
	now := claim{
		name: c.Name, pool: c.Labels[karpv1.NodePoolLabelKey], node: c.Status.NodeName, instanceType: c.Labels[corev1.LabelInstanceTypeStable],
		since: c.CreationTimestamp.Time, replaces: c.Annotations[capacity.ReplacesAnnotation],
	}
	if price, err := strconv.ParseFloat(c.Annotations[provisioner.PriceAnnotation], 64); err == nil {
		now.price, now.priced = price, true
	}
	for _, condition := range c.Status.Conditions {
		if condition.Status != "True" {
			continue
		}
		switch condition.Type {
		case karpv1.ConditionTypeLaunched:
			now.launched = true
		case karpv1.ConditionTypeRegistered:
			now.registered = true
		case karpv1.ConditionTypeInitialized:
			now.usable = true
		case karpv1.ConditionTypeDisruptionReason:
			now.reason = condition.Reason
		}
	}
	if c.DeletionTimestamp != nil {
		now.deleting = c.DeletionTimestamp.Time
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.claims[c.Name] != now {
		w.claims[c.Name] = now
		w.changes++
	}
}

// NoClaim notes that a NodeClaim is gone.
func (w *World) NoClaim(name string) { drop(w, w.claims, name) }

// Pool notes a NodePool as it is now.
func (w *World) Pool(p *karpv1.NodePool) {
	ready := false
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" {
			ready = c.Status == "True"
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if was, ok := w.pools[p.Name]; !ok || was != ready {
		w.pools[p.Name] = ready
		w.changes++
	}
}

// NoPool notes that a NodePool is gone.
func (w *World) NoPool(name string) { drop(w, w.pools, name) }

func drop[V any](w *World, from map[string]V, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(from, name)
	w.changes++
}
