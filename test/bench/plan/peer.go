// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/builder"
)

// peerCatalog is the catalogue of Karpenter's scheduling benchmark: 400 types, the i-th with i cores, 2i GiB and 10i pods,
// 0.1 dollars a core and as much a GB, three zones, spot and on-demand at one price (its cloudprovider/fake).
func peerCatalog() *capacity.Catalog {
	types := make([]*builder.InstanceTypeBuilder, 400)
	for i := range types {
		n := i + 1
		price := 0.1*float64(n) + 0.1*float64(n)*2*(1<<30)/1e9
		types[i] = builder.InstanceType(fmt.Sprintf("fake-it-%d", i)).CPU(fmt.Sprint(n)).Memory(fmt.Sprintf("%dGi", 2*n)).
			Resource(corev1.ResourcePods, fmt.Sprint(10*n)).Arch("amd64").
			Allocatable(corev1.ResourceCPU, fmt.Sprintf("%dm", 1000*n-100)).Allocatable(corev1.ResourceMemory, fmt.Sprintf("%dMi", 2048*n-10)).
			OnDemand(price, "test-zone-1", "test-zone-2", "test-zone-3").Spot(price, "test-zone-1", "test-zone-2", "test-zone-3")
	}
	return builder.Catalog(types...)
}

// peerInput is the peer's published mix: five equal kinds of pods (generic, zone spread, host spread, zone affinity to
// themselves, host anti-affinity), each pod with a label from a to g, and CPU and memory drawn from short lists.
func peerInput(n int, seed uint64) plan.Input {
	r := rand.New(rand.NewPCG(seed, 0))
	letter := func() string { return string(rune('a' + r.IntN(7))) }
	classes := map[string]*capacity.Class{}
	var pods []*capacity.Pod
	add := func(kind string, count int, build func(b *builder.ClassBuilder) string) {
		for i := range count {
			cpu := []int{100, 250, 500, 1000, 1500}[r.IntN(5)]
			mem := []int{100, 256, 512, 1024, 2048, 4096}[r.IntN(6)]
			b := builder.Class("").CPU(fmt.Sprintf("%dm", cpu)).Memory(fmt.Sprintf("%dMi", mem))
			id := fmt.Sprintf("%s-%d-%d-%s", kind, cpu, mem, build(b))
			c := classes[id]
			if c == nil {
				c = b.Obj()
				c.ID = id
				classes[id] = c
			}
			p := builder.PodsOf(c, 1)[0]
			p.Name = fmt.Sprintf("%s-%d", kind, i)
			p.UID = "uid/" + typesUID(p.Name)
			pods = append(pods, p)
		}
	}
	generic := func(b *builder.ClassBuilder) string {
		l := letter()
		b.Label("my-label", l)
		return l
	}
	fifth := n / 5
	add("generic", n-4*fifth, generic)
	add("zone-spread", fifth, func(b *builder.ClassBuilder) string {
		l, s := letter(), letter()
		b.Label("my-label", l).ZoneSpread(1, map[string]string{"my-label": s})
		return l + s
	})
	add("host-spread", fifth, func(b *builder.ClassBuilder) string {
		l, s := letter(), letter()
		b.Label("my-label", l).NodeSpread(1, map[string]string{"my-label": s})
		return l + s
	})
	add("zone-affinity", fifth, func(b *builder.ClassBuilder) string {
		l := letter()
		b.Label("my-affininity", l).Near(corev1.LabelTopologyZone, map[string]string{"my-affininity": l})
		return l
	})
	add("host-anti", fifth, func(b *builder.ClassBuilder) string {
		b.Label("app", "nginx").Apart(corev1.LabelHostname, map[string]string{"app": "nginx"})
		return ""
	})
	view := &capacity.View{Pools: []*capacity.Pool{builder.CapacityPool("default", peerCatalog()).Obj()}}
	return plan.Input{View: view, Pods: pods}
}
