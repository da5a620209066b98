// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

// regional is a catalogue of the size of a large region's: 1,000 types in three zones, spot and on demand.
func regional() *capacity.Catalog {
	types := make([]*capacity.InstanceType, 0, 1000)
	for i := range 1000 {
		types = append(types, builder.InstanceType(fmt.Sprintf("m%d.s%d", i/10, i%10)).CPU(fmt.Sprint(2+i%64)).Memory(fmt.Sprintf("%dGi", 4+i%256)).
			Label("karpenter.k8s.aws/instance-cpu", fmt.Sprint(2+i%64)).OnDemand(float64(i+1), "a", "b", "c").Spot(float64(i+1)/3, "a", "b", "c").Obj())
	}
	return capacity.NewCatalog(types)
}

func BenchmarkCatalogMatch(b *testing.B) {
	c := regional()
	two, wide := capacity.NewRequirements(capacity.In(corev1.LabelTopologyZone, "a", "b"), capacity.In(karpv1.CapacityTypeLabelKey, "spot")), capacity.Requirements{}
	values := make([]string, 200)
	for i := range values {
		values[i] = fmt.Sprintf("m%d.s%d", i%100, i/100)
	}
	wide = wide.With(capacity.In(corev1.LabelInstanceTypeStable, values...), req(b, builder.Requirement("karpenter.k8s.aws/instance-cpu", opGt, "7")))
	for name, reqs := range map[string]capacity.Requirements{"zones": two, "200-types": wide} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Match(reqs)
			}
		})
	}
}

func BenchmarkResources(b *testing.B) {
	plain, gpus := res("cpu", "1", "memory", "2Gi", "pods", "1"), res("cpu", "1", "memory", "2Gi", "pods", "1", "nvidia.com/gpu", "1")
	node := res("cpu", "64", "memory", "256Gi", "pods", "110", "nvidia.com/gpu", "8")
	for name, r := range map[string]capacity.Resources{"plain": plain, "gpu": gpus} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if left := node.Sub(r); r.Fits(left) && r.Count(left) == 0 {
					b.Fatal("what fits counts as zero")
				}
			}
		})
	}
}

func BenchmarkSatisfies(b *testing.B) {
	n := builder.CapacityNode("n").Instance("m5.large", "a", "spot", 1).Label("team", "x").Obj()
	terms := []capacity.Requirements{
		capacity.NewRequirements(capacity.In(corev1.LabelTopologyZone, "b"), capacity.In("team", "x")),
		capacity.NewRequirements(capacity.In(corev1.LabelTopologyZone, "a"), capacity.In("team", "x", "y")),
	}
	b.ReportAllocs()
	for b.Loop() {
		if !n.Satisfies(terms) {
			b.Fatal("the second term holds")
		}
	}
}
