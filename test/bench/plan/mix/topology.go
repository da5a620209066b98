// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/builder"
)

// TopologyNames lists the mixes with topology rules: one rule on half of the workloads, or all of them, each on some.
func TopologyNames() []string {
	return []string{"zone-spread", "host-spread", "host-anti", "zone-affinity", "all-rules"}
}

// mostApart bounds the pods of a workload that may not share nodes: nobody runs a thousand replicas that way.
const mostApart = 60

// Topology returns n pods of the 60 workloads of real, over the same five pools, with rules: zone-spread is maxSkew 1 over
// zones; host-spread maxSkew 1 to 3 over hosts and host-anti anti-affinity to themselves on hosts, both on workloads of at most 60
// pods; zone-affinity puts a workload into one zone. In all-rules one workload in ten has zone affinity, three in ten spread over
// zones, and of those small enough two in ten spread over hosts and two in ten repel each other.
func (m *Maker) Topology(name string, n int) (plan.Input, error) {
	r := rand.New(rand.NewPCG(m.Seed, 2))
	in := plan.Input{View: &capacity.View{Pools: fivePools(m.Catalog, 0)}}
	rule := map[string]func(rank, pods int, b *builder.ClassBuilder){
		"zone-spread": half(zoneSpread), "host-spread": half(hostSpread), "host-anti": half(hostAnti), "zone-affinity": half(zoneAffinity), "all-rules": allRules,
	}[name]
	if rule == nil {
		return in, fmt.Errorf("there is no topology mix %q", name)
	}
	return in, m.workloads(&in, r, n, rule)
}

// half puts a rule on every second workload.
func half(rule func(rank, pods int, b *builder.ClassBuilder)) func(rank, pods int, b *builder.ClassBuilder) {
	return func(rank, pods int, b *builder.ClassBuilder) {
		if rank%2 == 0 {
			rule(rank, pods, b)
		}
	}
}

func allRules(rank, pods int, b *builder.ClassBuilder) {
	switch rank % 10 {
	case 0:
		zoneAffinity(rank, pods, b)
	case 1, 4, 7:
		zoneSpread(rank, pods, b)
	case 2, 5:
		hostSpread(rank, pods, b)
	case 3, 8:
		hostAnti(rank, pods, b)
	}
}

func self(rank int) map[string]string {
	return map[string]string{"app": fmt.Sprintf("workload-%02d", rank)}
}

func zoneSpread(rank, _ int, b *builder.ClassBuilder) { b.ZoneSpread(1, self(rank)) }

func zoneAffinity(rank, _ int, b *builder.ClassBuilder) {
	b.Near(corev1.LabelTopologyZone, self(rank))
}

func hostSpread(rank, pods int, b *builder.ClassBuilder) {
	if pods <= mostApart {
		b.NodeSpread(1+rank%3, self(rank))
	}
}

func hostAnti(rank, pods int, b *builder.ClassBuilder) {
	if pods <= mostApart {
		b.Apart(corev1.LabelHostname, self(rank))
	}
}
