// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// errGone is the kind of error for a node that counts as not being there.
var errGone = errors.New("the node is taken as gone")

// overlay is what the judge's plugins see: the snapshot, with the nodes of a plan
// in place of or in addition to its own. Base nodes are shared and never changed.
type overlay struct {
	base *internalcache.Snapshot

	// gone are nodes of the base that count as not being there.
	gone    sets.Set[string]
	changed map[string]*framework.NodeInfo
	pvcs    map[string]int
	// Lists by what the pods on the nodes require, as in the snapshot.
	all, affinity, antiAffinity, wideAntiAffinity []fwk.NodeInfo
}

var (
	_ fwk.SharedLister      = &overlay{}
	_ fwk.NodeInfoLister    = &overlay{}
	_ fwk.StorageInfoLister = &overlay{}
)

// lay starts over from the snapshot, without the nodes that are gone. changed has all nodes of the plan by name;
// added are those of them that the snapshot does not have.
func (o *overlay) lay(gone sets.Set[string], changed map[string]*framework.NodeInfo, added []*framework.NodeInfo) {
	o.gone, o.changed = gone, changed
	o.pvcs = map[string]int{}
	// The snapshot's lists cannot fail: it has them in memory.
	base, _ := o.base.List()
	affinity, _ := o.base.HavePodsWithAffinityList()
	anti, _ := o.base.HavePodsWithRequiredAntiAffinityList()
	wide, _ := o.base.HavePodsWithRequiredNonHostScopedAntiAffinityList()
	o.affinity = o.without(o.affinity[:0], affinity)
	o.antiAffinity = o.without(o.antiAffinity[:0], anti)
	o.wideAntiAffinity = o.without(o.wideAntiAffinity[:0], wide)

	o.all = o.all[:0]
	for _, node := range base {
		if gone.Has(node.Node().Name) {
			continue
		}
		if planned, ok := changed[node.Node().Name]; ok {
			node = planned
		}
		o.all = append(o.all, node)
	}
	for _, node := range added {
		o.all = append(o.all, node)
	}
	for _, node := range changed {
		o.index(node, &framework.NodeInfo{})
		for key, n := range node.PVCRefCounts {
			o.pvcs[key] += n
		}
	}
}

// without appends the nodes of list that the plan leaves alone.
func (o *overlay) without(to, list []fwk.NodeInfo) []fwk.NodeInfo {
	for _, node := range list {
		if _, planned := o.changed[node.Node().Name]; !planned && !o.gone.Has(node.Node().Name) {
			to = append(to, node)
		}
	}
	return to
}

// add puts a pod on one of the plan's nodes.
func (o *overlay) add(node *framework.NodeInfo, pod *framework.PodInfo) {
	before := framework.NodeInfo{
		PodsWithAffinity:                          node.PodsWithAffinity,
		PodsWithRequiredAntiAffinity:              node.PodsWithRequiredAntiAffinity,
		PodsWithRequiredNonHostScopedAntiAffinity: node.PodsWithRequiredNonHostScopedAntiAffinity,
	}
	node.AddPodInfo(pod)
	o.index(node, &before)
	for key := range framework.PodPVCKeys(pod.Pod) {
		o.pvcs[key]++
	}
}

// index enters the node into the lists it has come to belong to since before.
func (o *overlay) index(node, before *framework.NodeInfo) {
	if len(before.PodsWithAffinity) == 0 && len(node.PodsWithAffinity) > 0 {
		o.affinity = append(o.affinity, node)
	}
	if len(before.PodsWithRequiredAntiAffinity) == 0 && len(node.PodsWithRequiredAntiAffinity) > 0 {
		o.antiAffinity = append(o.antiAffinity, node)
	}
	if len(before.PodsWithRequiredNonHostScopedAntiAffinity) == 0 && len(node.PodsWithRequiredNonHostScopedAntiAffinity) > 0 {
		o.wideAntiAffinity = append(o.wideAntiAffinity, node)
	}
}

// List returns all nodes.
func (o *overlay) List() ([]fwk.NodeInfo, error) { return o.all, nil }

// HavePodsWithAffinityList returns the nodes with pods that have (anti-)affinity terms.
func (o *overlay) HavePodsWithAffinityList() ([]fwk.NodeInfo, error) { return o.affinity, nil }

// HavePodsWithRequiredAntiAffinityList returns the nodes with pods that have
// required anti-affinity terms.
func (o *overlay) HavePodsWithRequiredAntiAffinityList() ([]fwk.NodeInfo, error) {
	return o.antiAffinity, nil
}

// HavePodsWithRequiredNonHostScopedAntiAffinityList returns the nodes with pods
// whose required anti-affinity reaches beyond the node.
func (o *overlay) HavePodsWithRequiredNonHostScopedAntiAffinityList() ([]fwk.NodeInfo, error) {
	return o.wideAntiAffinity, nil
}

// Get returns a node by name.
func (o *overlay) Get(name string) (fwk.NodeInfo, error) {
	if node, ok := o.changed[name]; ok {
		return node, nil
	}
	if o.gone.Has(name) {
		return nil, fmt.Errorf("getting node %q: %w", name, errGone)
	}
	node, err := o.base.Get(name)
	if err != nil {
		return nil, fmt.Errorf("getting node %q: %w", name, err)
	}
	return node, nil
}

// IsPVCUsedByPods tells whether a pod of the cluster or of the plan uses the
// claim, given as namespace/name.
func (o *overlay) IsPVCUsedByPods(key string) bool {
	return o.pvcs[key] > 0 || o.base.IsPVCUsedByPods(key)
}

// NodeInfos returns the overlay itself.
func (o *overlay) NodeInfos() fwk.NodeInfoLister { return o }

// StorageInfos returns the overlay itself.
func (o *overlay) StorageInfos() fwk.StorageInfoLister { return o }

// PodGroupStates, PodGroups, CompositePodGroupStates and CompositePodGroups are
// the snapshot's: plans have no pod groups.
func (o *overlay) PodGroupStates() fwk.PodGroupStateLister { return o.base.PodGroupStates() }

// PodGroups returns the snapshot's pod groups.
func (o *overlay) PodGroups() fwk.PodGroupLister { return o.base.PodGroups() }

// CompositePodGroupStates returns the snapshot's composite pod group states.
func (o *overlay) CompositePodGroupStates() fwk.CompositePodGroupStateLister {
	return o.base.CompositePodGroupStates()
}

// CompositePodGroups returns the snapshot's composite pod groups.
func (o *overlay) CompositePodGroups() fwk.CompositePodGroupLister {
	return o.base.CompositePodGroups()
}
