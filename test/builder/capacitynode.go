// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// CapacityNodeBuilder builds a capacity.Node.
type CapacityNodeBuilder struct {
	node        capacity.Node
	allocatable corev1.ResourceList
}

// CapacityNode starts a usable linux/amd64 node that takes 110 pods and has no CPU or memory yet.
func CapacityNode(name string) *CapacityNodeBuilder {
	b := &CapacityNodeBuilder{node: capacity.Node{Name: name, Phase: capacity.Usable}}
	return b.Label(corev1.LabelHostname, name).Label(corev1.LabelArchStable, "amd64").Label(corev1.LabelOSStable, "linux").
		Resource(corev1.ResourcePods, "110")
}

// Obj returns the node. Capacity equals allocatable; Used is what its pods ask for in sum.
func (b *CapacityNodeBuilder) Obj() *capacity.Node {
	n := b.node
	n.Labels = maps.Clone(n.Labels)
	n.Requirements = maps.Clone(n.Requirements)
	n.Taints = slices.Clone(n.Taints)
	n.Pods = maps.Clone(n.Pods)
	n.Terminating = maps.Clone(n.Terminating)
	n.Allocatable = capacity.FromList(b.allocatable)
	n.Capacity = n.Allocatable
	for c, count := range n.Pods {
		n.Used = n.Used.AddTimes(c.Requests, int64(count))
	}
	return &n
}

// CPU sets capacity and allocatable CPU.
func (b *CapacityNodeBuilder) CPU(quantity string) *CapacityNodeBuilder {
	return b.Resource(corev1.ResourceCPU, quantity)
}

// Memory sets capacity and allocatable memory.
func (b *CapacityNodeBuilder) Memory(quantity string) *CapacityNodeBuilder {
	return b.Resource(corev1.ResourceMemory, quantity)
}

// Resource sets capacity and allocatable of one resource.
func (b *CapacityNodeBuilder) Resource(name corev1.ResourceName, quantity string) *CapacityNodeBuilder {
	putQuantity(&b.allocatable, name, quantity)
	return b
}

// Label adds a label.
func (b *CapacityNodeBuilder) Label(key, value string) *CapacityNodeBuilder {
	put(&b.node.Labels, key, value)
	return b
}

// Instance sets what was bought, in the fields and as labels. The price is in US dollars an hour.
func (b *CapacityNodeBuilder) Instance(instanceType, zone, capacityType string, price float64) *CapacityNodeBuilder {
	b.node.InstanceType, b.node.Zone, b.node.CapacityType, b.node.Price = instanceType, zone, capacityType, price
	return b.Label(corev1.LabelInstanceTypeStable, instanceType).
		Label(corev1.LabelTopologyZone, zone).
		Label(karpv1.CapacityTypeLabelKey, capacityType)
}

// Pool makes the node one of a pool, bought through the claim, whose UID is derived from its name.
func (b *CapacityNodeBuilder) Pool(pool, claim string) *CapacityNodeBuilder {
	b.node.Pool, b.node.Claim, b.node.ClaimUID = pool, claim, types.UID("uid-"+claim)
	return b.Label(karpv1.NodePoolLabelKey, pool)
}

// Planned makes the node one that is not launched: no name, and its type, zone and capacity type within requirements.
func (b *CapacityNodeBuilder) Planned(reqs ...capacity.Requirement) *CapacityNodeBuilder {
	b.node.Name = ""
	b.node.Phase = capacity.Planned
	b.node.Requirements = capacity.NewRequirements(reqs...)
	delete(b.node.Labels, corev1.LabelHostname)
	return b
}

// Phase sets how far the node has come.
func (b *CapacityNodeBuilder) Phase(p capacity.Phase) *CapacityNodeBuilder {
	b.node.Phase = p
	return b
}

// Taint adds a taint.
func (b *CapacityNodeBuilder) Taint(key, value string, effect corev1.TaintEffect) *CapacityNodeBuilder {
	b.node.Taints = append(b.node.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
	return b
}

// Pods puts n pods of the class on the node.
func (b *CapacityNodeBuilder) Pods(c *capacity.Class, n int) *CapacityNodeBuilder {
	if b.node.Pods == nil {
		b.node.Pods = map[*capacity.Class]int{}
	}
	b.node.Pods[c] += n
	return b
}

// Terminating puts n pods of the class on the node that are being deleted.
func (b *CapacityNodeBuilder) Terminating(c *capacity.Class, n int) *CapacityNodeBuilder {
	if b.node.Terminating == nil {
		b.node.Terminating = map[*capacity.Class]int{}
	}
	b.node.Terminating[c] += n
	return b.Pods(c, n)
}
