// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Labels of instance types that Karpenter's AWS provider defines and tests select by.
const (
	labelCategory   = "karpenter.k8s.aws/instance-category"
	labelFamily     = "karpenter.k8s.aws/instance-family"
	labelGeneration = "karpenter.k8s.aws/instance-generation"
	labelSize       = "karpenter.k8s.aws/instance-size"
)

// InstanceTypeBuilder builds a capacity.InstanceType.
type InstanceTypeBuilder struct {
	typ         capacity.InstanceType
	allocatable corev1.ResourceList
	capacity    corev1.ResourceList
}

// InstanceType starts a linux/amd64 type that takes 110 pods, is not sold anywhere and has, beside the standard labels,
// those that follow from an EC2 name like m5d.large (family m5d, size large, category m, generation 5).
func InstanceType(name string) *InstanceTypeBuilder {
	b := &InstanceTypeBuilder{typ: capacity.InstanceType{Name: name, Labels: map[string]string{
		corev1.LabelInstanceTypeStable: name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
	}}}
	if family, size, ok := strings.Cut(name, "."); ok {
		b.Label(labelFamily, family).Label(labelSize, size)
		// The expression is Karpenter's (AWS provider, instancetype/types.go).
		if m := regexp.MustCompile(`^([a-z]+)(?:-[0-9]+tb)?([0-9]+)`).FindStringSubmatch(family); m != nil {
			b.Label(labelCategory, m[1]).Label(labelGeneration, m[2])
		}
	}
	return b.Resource(corev1.ResourcePods, "110")
}

// Obj returns the type. What is allocatable equals the capacity, apart from what Allocatable set.
func (b *InstanceTypeBuilder) Obj() *capacity.InstanceType {
	t := b.typ
	t.Labels = maps.Clone(t.Labels)
	t.Absent = slices.Clone(t.Absent)
	t.Offerings = slices.Clone(t.Offerings)
	t.Capacity = capacity.FromList(b.capacity)
	left := maps.Clone(b.capacity)
	maps.Copy(left, b.allocatable)
	t.Allocatable = capacity.FromList(left)
	return &t
}

// CPU sets the CPU capacity.
func (b *InstanceTypeBuilder) CPU(quantity string) *InstanceTypeBuilder {
	return b.Resource(corev1.ResourceCPU, quantity)
}

// Memory sets the memory capacity.
func (b *InstanceTypeBuilder) Memory(quantity string) *InstanceTypeBuilder {
	return b.Resource(corev1.ResourceMemory, quantity)
}

// Resource sets the capacity of one resource.
func (b *InstanceTypeBuilder) Resource(name corev1.ResourceName, quantity string) *InstanceTypeBuilder {
	putQuantity(&b.capacity, name, quantity)
	return b
}

// Allocatable sets what is left for pods of one resource.
func (b *InstanceTypeBuilder) Allocatable(name corev1.ResourceName, quantity string) *InstanceTypeBuilder {
	putQuantity(&b.allocatable, name, quantity)
	return b
}

// Arch sets the architecture label.
func (b *InstanceTypeBuilder) Arch(arch string) *InstanceTypeBuilder {
	return b.Label(corev1.LabelArchStable, arch)
}

// Label adds a label the type's nodes have.
func (b *InstanceTypeBuilder) Label(key, value string) *InstanceTypeBuilder {
	put(&b.typ.Labels, key, value)
	return b
}

// Absent names well-known labels the type's nodes lack.
func (b *InstanceTypeBuilder) Absent(keys ...string) *InstanceTypeBuilder {
	b.typ.Absent = append(b.typ.Absent, keys...)
	return b
}

// OnDemand sells the type on demand in the zones, at a price in US dollars an hour.
func (b *InstanceTypeBuilder) OnDemand(price float64, zones ...string) *InstanceTypeBuilder {
	return b.offer(karpv1.CapacityTypeOnDemand, price, zones)
}

// Spot sells the type as spot capacity in the zones, at a price in US dollars an hour.
func (b *InstanceTypeBuilder) Spot(price float64, zones ...string) *InstanceTypeBuilder {
	return b.offer(karpv1.CapacityTypeSpot, price, zones)
}

func (b *InstanceTypeBuilder) offer(capacityType string, price float64, zones []string) *InstanceTypeBuilder {
	for _, z := range zones {
		b.Offering(capacity.Offering{Zone: z, CapacityType: capacityType, Price: price})
	}
	return b
}

// Offering adds any offering.
func (b *InstanceTypeBuilder) Offering(o capacity.Offering) *InstanceTypeBuilder {
	b.typ.Offerings = append(b.typ.Offerings, o)
	return b
}

// Catalog indexes the types that are sold.
func Catalog(types ...*InstanceTypeBuilder) *capacity.Catalog {
	objs := make([]*capacity.InstanceType, 0, len(types))
	for _, t := range types {
		objs = append(objs, t.Obj())
	}
	return capacity.NewCatalog(objs)
}

// CapacityPoolBuilder builds a capacity.Pool.
type CapacityPoolBuilder struct {
	pool    capacity.Pool
	reqs    []capacity.Requirement
	missing func(capacity.OfferingKey) bool
}

// CapacityPool starts a pool that may buy everything in the catalogue and is never limited.
func CapacityPool(name string, catalog *capacity.Catalog) *CapacityPoolBuilder {
	return &CapacityPoolBuilder{
		pool: capacity.Pool{
			Name:     name,
			ClassRef: capacity.ClassRef{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: DefaultClass},
			Catalog:  catalog,
		},
		reqs:    []capacity.Requirement{capacity.In(karpv1.NodePoolLabelKey, name)},
		missing: func(capacity.OfferingKey) bool { return false },
	}
}

// Obj returns the pool.
func (b *CapacityPoolBuilder) Obj() *capacity.Pool {
	p := b.pool
	p.Requirements = capacity.NewRequirements(b.reqs...)
	p.Taints = slices.Clone(p.Taints)
	p.StartupTaints = slices.Clone(p.StartupTaints)
	p.Limits = maps.Clone(p.Limits)
	p.Daemons = slices.Clone(p.Daemons)
	if p.Catalog != nil {
		p.Available = p.Catalog.Without(b.missing)
	}
	return &p
}

// Weight sets the weight.
func (b *CapacityPoolBuilder) Weight(n int32) *CapacityPoolBuilder {
	b.pool.Weight = n
	return b
}

// Require adds requirements.
func (b *CapacityPoolBuilder) Require(reqs ...capacity.Requirement) *CapacityPoolBuilder {
	b.reqs = append(b.reqs, reqs...)
	return b
}

// NodeLabel adds a label the pool's nodes get.
func (b *CapacityPoolBuilder) NodeLabel(key, value string) *CapacityPoolBuilder {
	return b.Require(capacity.In(key, value))
}

// Taint adds a taint the pool's nodes get.
func (b *CapacityPoolBuilder) Taint(key, value string, effect corev1.TaintEffect) *CapacityPoolBuilder {
	b.pool.Taints = append(b.pool.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
	return b
}

// StartupTaint adds a taint new nodes have until an agent takes it off.
func (b *CapacityPoolBuilder) StartupTaint(key, value string, effect corev1.TaintEffect) *CapacityPoolBuilder {
	b.pool.StartupTaints = append(b.pool.StartupTaints, corev1.Taint{Key: key, Value: value, Effect: effect})
	return b
}

// Limit bounds the sum of one resource over the pool's nodes.
func (b *CapacityPoolBuilder) Limit(name corev1.ResourceName, quantity string) *CapacityPoolBuilder {
	putQuantity(&b.pool.Limits, name, quantity)
	return b
}

// LimitNodes bounds the number of the pool's nodes.
func (b *CapacityPoolBuilder) LimitNodes(n int64) *CapacityPoolBuilder {
	b.pool.LimitNodes = &n
	return b
}

// InUse records n nodes with a capacity of CPU and memory in sum.
func (b *CapacityPoolBuilder) InUse(n int64, cpu, memory string) *CapacityPoolBuilder {
	b.pool.Nodes = n
	b.pool.Usage = capacity.FromList(corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	})
	return b
}

// Daemons adds daemonset pods a new node may get.
func (b *CapacityPoolBuilder) Daemons(classes ...*capacity.Class) *CapacityPoolBuilder {
	b.pool.Daemons = append(b.pool.Daemons, classes...)
	return b
}

// OutOf makes EC2 known to be out of the offerings for which missing reports true.
func (b *CapacityPoolBuilder) OutOf(missing func(capacity.OfferingKey) bool) *CapacityPoolBuilder {
	b.missing = missing
	return b
}

// Blocked sets why nothing can be bought from the pool.
func (b *CapacityPoolBuilder) Blocked(reason string) *CapacityPoolBuilder {
	b.pool.Blocked = reason
	return b
}
