// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/builder"
)

// TestSolveBeatsFirstFit compares with first-fit-decreasing on every single type of the catalogue, each node exchanged for the
// cheapest that holds its pods: a plan is never dearer, the premium for even nodes apart.
func TestSolveBeatsFirstFit(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		cat := shop()
		in := plan.Input{View: &capacity.View{Pools: []*capacity.Pool{builder.CapacityPool("p", cat).Obj()}}}
		for i := range 3 + r.IntN(12) {
			c := builder.Class(fmt.Sprintf("c-%d", i)).CPU(fmt.Sprintf("%dm", 100+r.IntN(3900))).Memory(fmt.Sprintf("%dMi", 128+r.IntN(9000))).Obj()
			in.Pods = append(in.Pods, builder.PodsOf(c, 1+r.IntN(20))...)
		}
		got := 0.0
		result := plan.Solve(in)
		for i := range result.Launches {
			got += result.Launches[i].Price()
		}
		if want := firstFit(cat, in.Pods); len(result.Unplaced) > 0 || got > want*(1+plan.DefaultEvenness) {
			t.Errorf("seed %d: the plan costs %.4f, first fit %.4f; %d unplaced", seed, got, want, len(result.Unplaced))
		}
	}
}

func firstFit(cat *capacity.Catalog, pods []*capacity.Pod) float64 {
	sorted := slices.Clone(pods)
	slices.SortStableFunc(sorted, func(a, b *capacity.Pod) int { return cmp.Compare(b.Class.Requests.CPU, a.Class.Requests.CPU) })
	best := -1.0
	for _, t := range cat.Types {
		var used []capacity.Resources
		ok := true
		for _, p := range sorted {
			i := slices.IndexFunc(used, func(u capacity.Resources) bool { return p.Class.Requests.Fits(t.Allocatable.Sub(u)) })
			if i < 0 {
				ok = ok && p.Class.Requests.Fits(t.Allocatable)
				used = append(used, capacity.Resources{})
				i = len(used) - 1
			}
			used[i] = used[i].Add(p.Class.Requests)
		}
		cost := 0.0
		for _, u := range used {
			for _, o := range cat.Offerings {
				if u.Fits(o.Type.Allocatable) {
					cost += o.Price
					break
				}
			}
		}
		if ok && (best < 0 || cost < best) {
			best = cost
		}
	}
	return best
}
