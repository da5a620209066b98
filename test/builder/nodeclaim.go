// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// NodeClaimBuilder builds a NodeClaim.
type NodeClaimBuilder struct {
	Meta[*NodeClaimBuilder]
	claim *karpv1.NodeClaim
}

// NodeClaim starts a claim of class [DefaultClass] without pool, requirements, instance or conditions, that holds
// Karpenter's termination finalizer.
func NodeClaim(name string) *NodeClaimBuilder {
	c := &karpv1.NodeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{karpv1.TerminationFinalizer}},
	}
	c.Spec.NodeClassRef = classRef(DefaultClass)
	c.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{}
	c.Spec.ExpireAfter = karpv1.MustParseNillableDuration(karpv1.Never)
	b := &NodeClaimBuilder{claim: c}
	b.Meta = Meta[*NodeClaimBuilder]{self: b, object: &c.ObjectMeta}
	return b
}

// Obj returns the claim.
func (b *NodeClaimBuilder) Obj() *karpv1.NodeClaim { return b.claim.DeepCopy() }

// Pool labels the claim as one of a NodePool.
func (b *NodeClaimBuilder) Pool(name string) *NodeClaimBuilder {
	return b.Label(karpv1.NodePoolLabelKey, name)
}

// Class sets the EC2NodeClass by name.
func (b *NodeClaimBuilder) Class(name string) *NodeClaimBuilder {
	b.claim.Spec.NodeClassRef = classRef(name)
	return b
}

// Require adds requirements.
func (b *NodeClaimBuilder) Require(reqs ...corev1.NodeSelectorRequirement) *NodeClaimBuilder {
	b.claim.Spec.Requirements = append(b.claim.Spec.Requirements, withoutMinValues(reqs)...)
	return b
}

// Request sets one resource the claim's pods ask for in sum.
func (b *NodeClaimBuilder) Request(name corev1.ResourceName, quantity string) *NodeClaimBuilder {
	putQuantity(&b.claim.Spec.Resources.Requests, name, quantity)
	return b
}

// Taint adds a taint the node gets.
func (b *NodeClaimBuilder) Taint(key, value string, effect corev1.TaintEffect) *NodeClaimBuilder {
	b.claim.Spec.Taints = append(b.claim.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
	return b
}

// StartupTaint adds a taint the node has until an agent takes it off.
func (b *NodeClaimBuilder) StartupTaint(key, value string, effect corev1.TaintEffect) *NodeClaimBuilder {
	b.claim.Spec.StartupTaints = append(b.claim.Spec.StartupTaints, corev1.Taint{Key: key, Value: value, Effect: effect})
	return b
}

// Launched records the instance: its provider id, and its type, zone and capacity type as labels.
func (b *NodeClaimBuilder) Launched(providerID, instanceType, zone, capacityType string) *NodeClaimBuilder {
	b.claim.Status.ProviderID = providerID
	return b.Label(corev1.LabelInstanceTypeStable, instanceType).
		Label(corev1.LabelTopologyZone, zone).
		Label(karpv1.CapacityTypeLabelKey, capacityType).
		True(karpv1.ConditionTypeLaunched)
}

// Registered records that the instance joined as the node.
func (b *NodeClaimBuilder) Registered(node string) *NodeClaimBuilder {
	b.claim.Status.NodeName = node
	return b.True(karpv1.ConditionTypeRegistered)
}

// Initialized records that the node became usable.
func (b *NodeClaimBuilder) Initialized() *NodeClaimBuilder {
	return b.True(karpv1.ConditionTypeInitialized).True(readyCondition)
}

// True sets a condition to true.
func (b *NodeClaimBuilder) True(condition string) *NodeClaimBuilder {
	setCondition(b.claim, condition, metav1.ConditionTrue, "", "")
	return b
}

// False sets a condition to false.
func (b *NodeClaimBuilder) False(condition, reason, message string) *NodeClaimBuilder {
	setCondition(b.claim, condition, metav1.ConditionFalse, reason, message)
	return b
}

// Resource sets status.capacity and status.allocatable of one resource.
func (b *NodeClaimBuilder) Resource(name corev1.ResourceName, quantity string) *NodeClaimBuilder {
	putQuantity(&b.claim.Status.Capacity, name, quantity)
	putQuantity(&b.claim.Status.Allocatable, name, quantity)
	return b
}
