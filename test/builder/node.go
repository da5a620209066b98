// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// NodeBuilder builds a Node.
type NodeBuilder struct {
	Meta[*NodeBuilder]
	node *corev1.Node
}

// Node starts a ready linux/amd64 node that takes 110 pods and has no CPU or memory yet.
func Node(name string) *NodeBuilder {
	n := &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}},
	}
	b := &NodeBuilder{node: n}
	b.Meta = Meta[*NodeBuilder]{self: b, object: &n.ObjectMeta}
	return b.Resource(corev1.ResourcePods, "110").ready(corev1.ConditionTrue, "KubeletReady")
}

// Obj returns the node.
func (b *NodeBuilder) Obj() *corev1.Node { return b.node.DeepCopy() }

// CPU sets capacity and allocatable CPU.
func (b *NodeBuilder) CPU(quantity string) *NodeBuilder {
	return b.Resource(corev1.ResourceCPU, quantity)
}

// Memory sets capacity and allocatable memory.
func (b *NodeBuilder) Memory(quantity string) *NodeBuilder {
	return b.Resource(corev1.ResourceMemory, quantity)
}

// Resource sets capacity and allocatable of one resource.
func (b *NodeBuilder) Resource(name corev1.ResourceName, quantity string) *NodeBuilder {
	putQuantity(&b.node.Status.Capacity, name, quantity)
	return b.Allocatable(name, quantity)
}

// Allocatable sets allocatable of one resource and leaves its capacity as it is.
func (b *NodeBuilder) Allocatable(name corev1.ResourceName, quantity string) *NodeBuilder {
	putQuantity(&b.node.Status.Allocatable, name, quantity)
	return b
}

// Zone sets the zone label.
func (b *NodeBuilder) Zone(zone string) *NodeBuilder {
	return b.Label(corev1.LabelTopologyZone, zone)
}

// InstanceType sets the instance type label.
func (b *NodeBuilder) InstanceType(name string) *NodeBuilder {
	return b.Label(corev1.LabelInstanceTypeStable, name)
}

// CapacityType sets the capacity type label.
func (b *NodeBuilder) CapacityType(ct string) *NodeBuilder {
	return b.Label(karpv1.CapacityTypeLabelKey, ct)
}

// Pool labels the node as registered and initialized for a NodePool.
func (b *NodeBuilder) Pool(name string) *NodeBuilder {
	return b.Label(karpv1.NodePoolLabelKey, name).
		Label(karpv1.NodeRegisteredLabelKey, "true").
		Label(karpv1.NodeInitializedLabelKey, "true")
}

// ProviderID sets spec.providerID.
func (b *NodeBuilder) ProviderID(id string) *NodeBuilder {
	b.node.Spec.ProviderID = id
	return b
}

// Taint adds a taint.
func (b *NodeBuilder) Taint(key, value string, effect corev1.TaintEffect) *NodeBuilder {
	b.node.Spec.Taints = append(b.node.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
	return b
}

// Cordoned marks the node unschedulable.
func (b *NodeBuilder) Cordoned() *NodeBuilder {
	b.node.Spec.Unschedulable = true
	return b.Taint(corev1.TaintNodeUnschedulable, "", corev1.TaintEffectNoSchedule)
}

// NotReady makes the node as it is before its kubelet is ready, with the taint the node lifecycle controller puts on.
func (b *NodeBuilder) NotReady() *NodeBuilder {
	return b.ready(corev1.ConditionFalse, "KubeletNotReady").Taint(corev1.TaintNodeNotReady, "", corev1.TaintEffectNoSchedule)
}

func (b *NodeBuilder) ready(s corev1.ConditionStatus, reason string) *NodeBuilder {
	b.node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: s, Reason: reason, LastTransitionTime: metav1.NewTime(Epoch()),
	}}
	return b
}
