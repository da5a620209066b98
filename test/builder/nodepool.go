// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// DefaultClass is the EC2NodeClass that built pools and claims refer to unless Class says otherwise.
const DefaultClass = "default"

func classRef(name string) *karpv1.NodeClassReference {
	return &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: name}
}

// NodePoolBuilder builds a NodePool.
type NodePoolBuilder struct {
	Meta[*NodePoolBuilder]
	pool *karpv1.NodePool
}

// NodePool starts a pool of class [DefaultClass] that may buy anything, is never limited and has no conditions yet.
func NodePool(name string) *NodePoolBuilder {
	p := &karpv1.NodePool{
		TypeMeta:   metav1.TypeMeta{APIVersion: "karpenter.sh/v1", Kind: "NodePool"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	p.Spec.Template.Spec.NodeClassRef = classRef(DefaultClass)
	p.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{}
	p.Spec.Template.Spec.ExpireAfter = karpv1.MustParseNillableDuration(karpv1.Never)
	p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
	p.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized
	b := &NodePoolBuilder{pool: p}
	b.Meta = Meta[*NodePoolBuilder]{self: b, object: &p.ObjectMeta}
	return b
}

// Obj returns the pool.
func (b *NodePoolBuilder) Obj() *karpv1.NodePool { return b.pool.DeepCopy() }

// Class sets the EC2NodeClass by name.
func (b *NodePoolBuilder) Class(name string) *NodePoolBuilder {
	b.pool.Spec.Template.Spec.NodeClassRef = classRef(name)
	return b
}

// Weight sets spec.weight, 1 to 100.
func (b *NodePoolBuilder) Weight(n int32) *NodePoolBuilder {
	b.pool.Spec.Weight = &n
	return b
}

// Require adds requirements.
func (b *NodePoolBuilder) Require(reqs ...corev1.NodeSelectorRequirement) *NodePoolBuilder {
	b.pool.Spec.Template.Spec.Requirements = append(b.pool.Spec.Template.Spec.Requirements, withoutMinValues(reqs)...)
	return b
}

// RequireMin adds a requirement of which at least minValues distinct values must stay possible.
func (b *NodePoolBuilder) RequireMin(minValues int, req corev1.NodeSelectorRequirement) *NodePoolBuilder {
	r := withoutMinValues([]corev1.NodeSelectorRequirement{req})
	r[0].MinValues = &minValues
	b.pool.Spec.Template.Spec.Requirements = append(b.pool.Spec.Template.Spec.Requirements, r...)
	return b
}

func withoutMinValues(reqs []corev1.NodeSelectorRequirement) []karpv1.NodeSelectorRequirementWithMinValues {
	out := make([]karpv1.NodeSelectorRequirementWithMinValues, 0, len(reqs))
	for _, r := range reqs {
		out = append(out, karpv1.NodeSelectorRequirementWithMinValues{Key: r.Key, Operator: r.Operator, Values: r.Values})
	}
	return out
}

// NodeLabel adds a label the pool's nodes get.
func (b *NodePoolBuilder) NodeLabel(key, value string) *NodePoolBuilder {
	put(&b.pool.Spec.Template.Labels, key, value)
	return b
}

// NodeAnnotation adds an annotation the pool's nodes get.
func (b *NodePoolBuilder) NodeAnnotation(key, value string) *NodePoolBuilder {
	put(&b.pool.Spec.Template.Annotations, key, value)
	return b
}

// Taint adds a taint the pool's nodes get.
func (b *NodePoolBuilder) Taint(key, value string, effect corev1.TaintEffect) *NodePoolBuilder {
	spec := &b.pool.Spec.Template.Spec
	spec.Taints = append(spec.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
	return b
}

// StartupTaint adds a taint new nodes have until an agent takes it off.
func (b *NodePoolBuilder) StartupTaint(key, value string, effect corev1.TaintEffect) *NodePoolBuilder {
	spec := &b.pool.Spec.Template.Spec
	spec.StartupTaints = append(spec.StartupTaints, corev1.Taint{Key: key, Value: value, Effect: effect})
	return b
}

// Limit bounds the sum of one resource over the pool's nodes.
func (b *NodePoolBuilder) Limit(name corev1.ResourceName, quantity string) *NodePoolBuilder {
	limits := corev1.ResourceList(b.pool.Spec.Limits)
	putQuantity(&limits, name, quantity)
	b.pool.Spec.Limits = karpv1.Limits(limits)
	return b
}

// Replicas makes the pool static: it keeps n nodes whatever pods there are.
func (b *NodePoolBuilder) Replicas(n int64) *NodePoolBuilder {
	b.pool.Spec.Replicas = &n
	return b
}

// ExpireAfter sets how long a node may live, a duration or Never.
func (b *NodePoolBuilder) ExpireAfter(d string) *NodePoolBuilder {
	b.pool.Spec.Template.Spec.ExpireAfter = karpv1.MustParseNillableDuration(d)
	return b
}

// Consolidate sets the consolidation policy and consolidateAfter, a duration or Never.
func (b *NodePoolBuilder) Consolidate(policy karpv1.ConsolidationPolicy, after string) *NodePoolBuilder {
	b.pool.Spec.Disruption.ConsolidationPolicy = policy
	b.pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration(after)
	return b
}

// Budget adds a disruption budget: nodes (a count or a percentage) for the reasons, all if none is given.
func (b *NodePoolBuilder) Budget(nodes string, reasons ...karpv1.DisruptionReason) *NodePoolBuilder {
	b.pool.Spec.Disruption.Budgets = append(b.pool.Spec.Disruption.Budgets, karpv1.Budget{Nodes: nodes, Reasons: reasons})
	return b
}

// Ready sets the conditions of a pool that can be bought from.
func (b *NodePoolBuilder) Ready() *NodePoolBuilder {
	for _, c := range []string{karpv1.ConditionTypeValidationSucceeded, karpv1.ConditionTypeNodeClassReady, readyCondition} {
		setCondition(b.pool, c, metav1.ConditionTrue, "", "")
	}
	return b
}

// NotReady sets condition c, and with it Ready, to false.
func (b *NodePoolBuilder) NotReady(c, reason, message string) *NodePoolBuilder {
	setCondition(b.pool, c, metav1.ConditionFalse, reason, message)
	setCondition(b.pool, readyCondition, metav1.ConditionFalse, "UnhealthyDependents", c+"=False")
	return b
}

// readyCondition is the root condition of every Karpenter object.
const readyCondition = "Ready"
