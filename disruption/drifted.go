// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"slices"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// What a node can have drifted in: reasons of condition Drifted, Karpenter's and its AWS provider's.
const (
	driftPool         = "NodePoolDrifted"
	driftRequirements = "RequirementsDrifted"
	driftType         = "InstanceTypeNotFound"
	driftClass        = "NodeClassDrift"
	driftImage        = "AMIDrift"
	driftGroups       = "SecurityGroupDrift"
	driftSubnet       = "SubnetDrift"
	driftReservation  = "CapacityReservationDrift"
	driftPlacement    = "PlacementGroupDrift"
)

// typeGoneAfter is how old a node has to be before it counts that its instance type is not sold any more.
const typeGoneAfter = time.Hour

// Drift says in what the node has drifted, empty if in nothing. Order and rules are Karpenter's: the static fields by hash (an
// unknown or different version of either hash compares nothing), then requirements, then what the cloud says.
func (s *Snapshot) Drift(n *Node) string {
	if _, launched := n.condition(karpv1.ConditionTypeLaunched); !launched || n.Pool == nil || n.Claim.DeletionTimestamp != nil {
		return ""
	}
	a := n.Claim.Annotations
	switch {
	case hashed(n.Pool.Annotations, a, karpv1.NodePoolHashAnnotationKey, karpv1.NodePoolHashVersionAnnotationKey):
		return driftPool
	case !s.meets(n):
		return driftRequirements
	case s.typeGone(n):
		return driftType
	case n.Pool.Class == nil:
		return ""
	case hashed(n.Pool.Class.Annotations, a, v1.AnnotationEC2NodeClassHash, v1.AnnotationEC2NodeClassHashVersion):
		return driftClass
	case imageDrifted(n, s.labelsOf(n)):
		return driftImage
	}
	if why := s.instanceDrift(n); why != "" {
		return why
	}
	if placementDrifted(n) {
		return driftPlacement
	}
	return ""
}

// hashed reports whether both sides have a hash of the same version and they differ.
func hashed(want, have map[string]string, hash, version string) bool {
	for _, m := range []map[string]string{want, have} {
		if m[hash] == "" || m[version] == "" {
			return false
		}
	}
	return want[version] == have[version] && want[hash] != have[hash]
}

// meets reports whether the claim's labels satisfy the pool's requirements.
func (s *Snapshot) meets(n *Node) bool {
	labels := s.labelsOf(n)
	for _, r := range n.Pool.Spec.Template.Spec.Requirements {
		if !labels.satisfy(r.Key, r.Operator, r.Values) {
			return false
		}
	}
	return true
}

// labelsOf are the claim's labels and, behind them, those every node of its instance type has: what a label that is younger than
// the node would say is known from its type.
type labelsOf struct{ own, typ map[string]string }

func (s *Snapshot) labelsOf(n *Node) labelsOf {
	out := labelsOf{own: n.Claim.Labels}
	if p := s.View.Pool(n.PoolName()); p != nil && p.Catalog != nil {
		if t := p.Catalog.Type(n.Claim.Labels[corev1.LabelInstanceTypeStable]); t != nil {
			out.typ = t.Labels
		}
	}
	return out
}

// satisfy reports whether the labels satisfy a requirement. One that cannot be read is satisfied: others complain of it.
func (l labelsOf) satisfy(key string, op corev1.NodeSelectorOperator, values []string) bool {
	q, err := capacity.NewRequirement(key, op, values...)
	if err != nil {
		return true
	}
	v, ok := l.own[q.Key]
	if !ok {
		v, ok = l.typ[q.Key]
	}
	return ok && q.Has(v) || !ok && q.AllowsAbsent()
}

// typeGone reports whether what the node was bought as is not sold any more, in stock or not.
func (s *Snapshot) typeGone(n *Node) bool {
	p := s.View.Pool(n.PoolName())
	if p == nil || p.Catalog == nil || s.Now.Sub(n.Claim.CreationTimestamp.Time) <= typeGoneAfter {
		return false
	}
	labels := n.Claim.Labels
	t := p.Catalog.Type(labels[corev1.LabelInstanceTypeStable])
	if t == nil {
		return true
	}
	kind := labels[karpv1.CapacityTypeLabelKey]
	return !slices.ContainsFunc(t.Offerings, func(o capacity.Offering) bool {
		// A reserved node turns on-demand when its reservation ends: both count until its label is corrected.
		return o.Zone == labels[corev1.LabelTopologyZone] &&
			(o.CapacityType == kind || kind == karpv1.CapacityTypeReserved && o.CapacityType == karpv1.CapacityTypeOnDemand)
	})
}

// imageDrifted reports whether the class gives an instance of this type another image now: the first of its images whose
// requirements the type meets.
func imageDrifted(n *Node, labels labelsOf) bool {
	if n.Claim.Status.ImageID == "" {
		return false
	}
	for i := range n.Pool.Class.Status.AMIs {
		if a := &n.Pool.Class.Status.AMIs[i]; suits(a, labels) {
			return a.ID != n.Claim.Status.ImageID
		}
	}
	return false
}

// suits reports whether instances with the labels boot the image.
func suits(a *v1.AMI, labels labelsOf) bool {
	return !slices.ContainsFunc(a.Requirements, func(r corev1.NodeSelectorRequirement) bool { return !labels.satisfy(r.Key, r.Operator, r.Values) })
}

// instanceDrift compares what EC2 says of the instance with what the class has resolved to.
func (s *Snapshot) instanceDrift(n *Node) string {
	i, ok := s.instances[n.Claim.Status.ProviderID]
	status := &n.Pool.Class.Status
	if !ok {
		return ""
	}
	if len(status.SecurityGroups) > 0 && groupsDrifted(n, i, status.SecurityGroups) {
		return driftGroups
	}
	if len(status.Subnets) > 0 && i.SubnetID != "" && !slices.ContainsFunc(status.Subnets, func(x v1.Subnet) bool { return x.ID == i.SubnetID }) {
		return driftSubnet
	}
	if r := i.Reservation; r != nil && !slices.ContainsFunc(status.CapacityReservations, func(x v1.CapacityReservation) bool { return x.ID == r.ID }) {
		return driftReservation
	}
	return ""
}

// placementDrifted reports whether the node is in a placement group that its class does not ask for. One that is in none is no
// drift: Slipway launches nowhere else, and its replacement would drift again.
func placementDrifted(n *Node) bool {
	has, want := n.Claim.Labels[v1.LabelPlacementGroupID], n.Pool.Class.Spec.PlacementGroupSelector
	return has != "" && (want == nil || ptr.Deref(want.ID, has) != has)
}

// groupsDrifted reports whether the instance's security groups are other ones than the class's. Groups that somebody adds to every
// instance from outside would make each replacement drift again: one that was itself bought for that reason and has all
// it should have is left alone.
func groupsDrifted(n *Node, i ec2.Instance, want []v1.SecurityGroup) bool {
	missing := slices.ContainsFunc(want, func(g v1.SecurityGroup) bool { return !slices.Contains(i.SecurityGroups, g.ID) })
	extra := slices.ContainsFunc(i.SecurityGroups, func(id string) bool {
		return !slices.ContainsFunc(want, func(g v1.SecurityGroup) bool { return g.ID == id })
	})
	return missing || extra && n.Claim.Annotations[ReplacedForAnnotation] != driftGroups
}
