// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// cluster is the scheduler's own kind of cache over the nodes and assigned pods,
// fed by handlers of its own. The live scheduler's cache cannot be shared: its
// snapshots are taken by whoever comes first, and rewritten in place.
type cluster struct {
	cache    internalcache.Cache
	snapshot *internalcache.Snapshot
	synced   []cache.InformerSynced
	logger   klog.Logger
}

func newCluster(ctx context.Context, factory informers.SharedInformerFactory) (*cluster, error) {
	c := &cluster{
		cache:    internalcache.New(ctx, nil, false, false),
		snapshot: internalcache.NewEmptySnapshot(),
		logger:   klog.FromContext(ctx),
	}
	pods, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.FilteringResourceEventHandler{
		FilterFunc: assigned,
		Handler:    cache.ResourceEventHandlerFuncs{AddFunc: c.addPod, UpdateFunc: c.updatePod, DeleteFunc: c.deletePod},
	})
	if err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	nodes, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.addNode, UpdateFunc: c.updateNode, DeleteFunc: c.deleteNode,
	})
	if err != nil {
		return nil, fmt.Errorf("watching nodes: %w", err)
	}
	c.synced = []cache.InformerSynced{pods.HasSynced, nodes.HasSynced}
	return c, nil
}

func (c *cluster) hasSynced() bool {
	for _, synced := range c.synced {
		if !synced() {
			return false
		}
	}
	return true
}

// update brings the snapshot up to the cache; what has not changed is kept.
func (c *cluster) update(ctx context.Context) error {
	if err := c.cache.UpdateSnapshot(klog.FromContext(ctx), c.snapshot); err != nil {
		return fmt.Errorf("taking a snapshot of the cluster: %w", err)
	}
	return nil
}

// node returns a copy of the snapshot's node, nil if there is none.
func (c *cluster) node(name string) *framework.NodeInfo {
	info, err := c.snapshot.Get(name)
	if err != nil {
		return nil
	}
	node, ok := info.Snapshot().(*framework.NodeInfo)
	if !ok {
		return nil
	}
	return node
}

// assigned selects pods with a node. A tombstone's pod may be stale, and is taken
// as assigned so that it is removed in any case.
func assigned(obj any) bool {
	if _, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return true
	}
	pod, ok := obj.(*corev1.Pod)
	return ok && pod.Spec.NodeName != ""
}

func (c *cluster) addPod(obj any) {
	if pod, ok := obj.(*corev1.Pod); ok {
		c.check("adding pod", c.cache.AddPod(c.logger, pod))
	}
}

func (c *cluster) updatePod(oldObj, newObj any) {
	oldPod, ok := oldObj.(*corev1.Pod)
	newPod, ok2 := newObj.(*corev1.Pod)
	if !ok || !ok2 {
		return
	}
	if oldPod.UID != newPod.UID {
		// Deleted and created again under its name between two looks.
		c.deletePod(oldPod)
		c.addPod(newPod)
		return
	}
	c.check("updating pod", c.cache.UpdatePod(c.logger, oldPod, newPod))
}

func (c *cluster) deletePod(obj any) {
	tombstone, stale := obj.(cache.DeletedFinalStateUnknown)
	if stale {
		obj = tombstone.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	if stale {
		known, err := c.cache.GetPod(pod)
		if err != nil {
			return
		}
		pod = known
	}
	c.check("removing pod", c.cache.RemovePod(c.logger, pod))
}

func (c *cluster) addNode(obj any) {
	if node, ok := obj.(*corev1.Node); ok {
		c.cache.AddNode(c.logger, node)
	}
}

func (c *cluster) updateNode(oldObj, newObj any) {
	oldNode, ok := oldObj.(*corev1.Node)
	newNode, ok2 := newObj.(*corev1.Node)
	if ok && ok2 {
		c.cache.UpdateNode(c.logger, oldNode, newNode)
	}
}

func (c *cluster) deleteNode(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	if node, ok := obj.(*corev1.Node); ok {
		c.check("removing node", c.cache.RemoveNode(c.logger, node))
	}
}

// check reports what the cache thinks of an event. The cache has handled it by
// then as well as it can.
func (c *cluster) check(doing string, err error) {
	if err != nil {
		utilruntime.HandleErrorWithLogger(c.logger, err, "Judge cache disagrees with an event", "doing", doing)
	}
}
