// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/slipway-sh/slipway/provisioner/hypothesis"
)

// csiNodes are the cluster's CSINodes and those the candidates will have. Without
// one, plugin NodeVolumeLimits takes a node to have no limit, and no driver that
// says its pods need one (CSIDriver.spec.preventPodSchedulingIfMissing).
type csiNodes struct {
	live    fwk.CSINodeLister
	drivers storagelisters.CSIDriverLister
	cluster *cluster

	planned map[string]*hypothesis.Node
	// made are CSINodes of candidates, by node; learned the limits of instance types.
	made    map[string]*storagev1.CSINode
	learned map[string]map[string]int32
}

var (
	_ fwk.CSIManager    = &csiNodes{}
	_ fwk.CSINodeLister = &csiNodes{}
)

func newCSINodes(live framework.Framework, c *cluster) *csiNodes {
	n := &csiNodes{live: live.SharedCSIManager().CSINodes(), drivers: live.SharedInformerFactory().Storage().V1().CSIDrivers().Lister(), cluster: c}
	n.reset()
	return n
}

func (n *csiNodes) reset() {
	n.planned, n.made, n.learned = map[string]*hypothesis.Node{}, map[string]*storagev1.CSINode{}, nil
}

// plan makes the candidate known. What its CSINode will be is found out when a pod with volumes asks for it.
func (n *csiNodes) plan(c *hypothesis.Node) { n.planned[c.Node.Name] = c }

// CSINodes returns n itself.
func (n *csiNodes) CSINodes() fwk.CSINodeLister { return n }

// List returns the CSINodes of the cluster.
func (n *csiNodes) List() ([]*storagev1.CSINode, error) {
	list, err := n.live.List()
	if err != nil {
		return nil, fmt.Errorf("listing CSINodes: %w", err)
	}
	return list, nil
}

// Get returns the CSINode of a node of the cluster or of a candidate.
func (n *csiNodes) Get(name string) (*storagev1.CSINode, error) {
	c, ok := n.planned[name]
	if !ok {
		return n.live.Get(name) //nolint:wrapcheck // the plugin looks at the kind of error
	}
	made, ok := n.made[name]
	if !ok {
		made = n.template(c)
		n.made[name] = made
	}
	return made, nil
}

// template is the CSINode the candidate will have: every driver of the cluster,
// which its daemonset installs, with the limit that is known of it.
func (n *csiNodes) template(c *hypothesis.Node) *storagev1.CSINode {
	limits := maps.Clone(n.limitsOf(c.Node.Labels[corev1.LabelInstanceTypeStable]))
	if limits == nil {
		limits = map[string]int32{}
	}
	maps.Copy(limits, c.AttachLimits)
	names := slices.Collect(maps.Keys(limits))
	installed, err := n.drivers.List(labels.Everything())
	if err != nil {
		installed = nil // an informer's store cannot fail
	}
	for _, d := range installed {
		if _, ok := limits[d.Name]; !ok {
			names = append(names, d.Name)
		}
	}
	slices.Sort(names)
	out := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: c.Node.Name}}
	for _, name := range names {
		driver := storagev1.CSINodeDriver{Name: name, NodeID: c.Node.Name}
		if count, ok := limits[name]; ok {
			driver.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
		}
		out.Spec.Drivers = append(out.Spec.Drivers, driver)
	}
	return out
}

// limitsOf are the limits that the cluster's nodes of an instance type report, the
// least of each driver: a node's own may be lower, for instance when it has more
// network interfaces.
func (n *csiNodes) limitsOf(instanceType string) map[string]int32 {
	if n.learned == nil {
		n.learned = map[string]map[string]int32{}
		list, err := n.live.List()
		if err != nil {
			list = nil // an informer's store cannot fail
		}
		for _, c := range list {
			n.learn(c)
		}
	}
	return n.learned[instanceType]
}

func (n *csiNodes) learn(c *storagev1.CSINode) {
	info, err := n.cluster.snapshot.Get(c.Name)
	if err != nil {
		return // its node is gone
	}
	kind := info.Node().Labels[corev1.LabelInstanceTypeStable]
	if kind == "" {
		return
	}
	for _, d := range c.Spec.Drivers {
		if d.Allocatable == nil || d.Allocatable.Count == nil {
			continue
		}
		if n.learned[kind] == nil {
			n.learned[kind] = map[string]int32{}
		}
		if have, ok := n.learned[kind][d.Name]; !ok || *d.Allocatable.Count < have {
			n.learned[kind][d.Name] = *d.Allocatable.Count
		}
	}
}
