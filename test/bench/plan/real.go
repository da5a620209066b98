// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/builder"
)

// shapes is how many workloads the real mix has.
const shapes = 60

// realInput is n pods of 60 workloads without topology rules over the full catalogue: cores drawn from 100m to 4, GiB a core
// from 0.5 to 16, both weighted towards the middle as in published service fleets; workload sizes fall off harmonically.
func realInput(cat *capacity.Catalog, n int, seed uint64) plan.Input {
	r := rand.New(rand.NewPCG(seed, 0))
	millis := []int{100, 200, 250, 500, 500, 1000, 1000, 2000, 4000}
	perCore := []float64{0.5, 1, 2, 2, 4, 4, 8, 16}
	var in plan.Input
	total := 0.0
	for i := range shapes {
		total += 1 / float64(i+1)
	}
	for i := range shapes {
		cpu := millis[r.IntN(len(millis))]
		mem := float64(cpu) / 1000 * perCore[r.IntN(len(perCore))] * 1024
		c := builder.Class(fmt.Sprintf("workload-%02d", i)).CPU(fmt.Sprintf("%dm", cpu)).Memory(fmt.Sprintf("%dMi", int(mem))).Obj()
		share := int(math.Round(float64(n) / float64(i+1) / total))
		in.Pods = append(in.Pods, builder.PodsOf(c, max(share, 1))...)
	}
	in.Pods = in.Pods[:min(n, len(in.Pods))]
	daemon := builder.Class("daemons").CPU("150m").Memory("250Mi").Obj()
	pool := builder.CapacityPool("default", cat).Daemons(daemon).Require(
		capacity.In(v1.LabelInstanceCategory, "c", "m", "r"), newer(v1.LabelInstanceGeneration, "4"))
	in.View = &capacity.View{Pools: []*capacity.Pool{pool.Obj()}}
	return in
}

func newer(key, than string) capacity.Requirement {
	q, err := capacity.NewRequirement(key, corev1.NodeSelectorOpGt, than)
	if err != nil {
		panic(err) // the operator and the number are right here
	}
	return q
}

// lowerBound is the least any set of nodes can cost that has the pods' CPU and memory in sum: the linear program over
// fractional nodes (daemonset pods taken off each), solved in its dual, max w·demand with w·free(t) ≤ price(t) for every
// type t, by a search over the ratio of the two worths. No integral plan can be cheaper.
func lowerBound(in plan.Input) float64 {
	var cpu, mem float64
	for _, p := range in.Pods {
		cpu += float64(p.Class.Requests.CPU) / 1000
		mem += float64(p.Class.Requests.Memory) / (1 << 30)
	}
	pool := in.View.Pools[0]
	var daemons capacity.Resources
	for _, d := range pool.Daemons {
		daemons = daemons.Add(d.Requests)
	}
	cat := pool.Catalog
	best := 0.0
	open := cat.Match(pool.Requirements)
	for x := -6.0; x <= 4; x += 0.01 {
		ratio := math.Exp(x)
		scale := math.Inf(1)
		for _, i := range cat.Cheapest(open) {
			free := cat.Offerings[i].Type.Allocatable.Sub(daemons)
			if v := float64(free.CPU)/1000 + ratio*float64(free.Memory)/(1<<30); v > 0 {
				scale = min(scale, cat.Offerings[i].Price/v)
			}
		}
		best = max(best, scale*(cpu+ratio*mem))
	}
	return best
}
