// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"math"
	"slices"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// worth is what one unit of each resource is worth in US dollars an hour at the prices on offer. It makes nodes of
// different shapes comparable: a node is as good as the worth of what it holds per dollar it costs.
type worth struct {
	cpu      float64 // a millicore
	memory   float64 // a byte
	extended map[string]float64
}

func (w worth) of(r capacity.Resources) float64 {
	v := w.cpu*float64(max(r.CPU, 0)) + w.memory*float64(max(r.Memory, 0))
	for _, q := range r.Extended {
		v += w.extended[string(q.Name)] * float64(max(q.Value, 0))
	}
	return v
}

// offer is a node shape for sale: what it has for pods and its lowest price.
type offer struct {
	free  capacity.Resources
	price float64
}

// appraise computes the worth of resources for a demand: the dual solution of the linear program "cover the demand at
// the least cost with fractional nodes", max w·demand subject to w·free(t) ≤ price(t) for every type t. With two
// resources the optimum is found by a one-dimensional search over the ratio of the two worths, along which the
// objective has a single peak. An extended resource is worth what its cheapest carrier costs beyond CPU and memory.
func appraise(demand capacity.Resources, offers []offer) worth {
	const (
		core = 1000.0
		gib  = float64(1 << 30)
	)
	dc, dm := float64(demand.CPU)/core, float64(demand.Memory)/gib
	all := offers
	offers = best(offers)
	scale := func(ratio float64) float64 { // the largest s with s·(1, ratio)·free ≤ price for every offer
		s := math.Inf(1)
		for _, o := range offers {
			if v := float64(o.free.CPU)/core + ratio*float64(o.free.Memory)/gib; v > 0 {
				s = min(s, o.price/v)
			}
		}
		return s
	}
	value := func(x float64) float64 { r := math.Exp(x); return scale(r) * (dc + r*dm) }
	lo, hi := math.Log(1.0/256), math.Log(16.0)
	for range 40 {
		a, b := lo+(hi-lo)/3, hi-(hi-lo)/3
		if value(a) < value(b) {
			lo = a
		} else {
			hi = b
		}
	}
	r := math.Exp((lo + hi) / 2)
	s := scale(r)
	if math.IsInf(s, 1) {
		return worth{}
	}
	w := worth{cpu: s / core, memory: s * r / gib, extended: map[string]float64{}}
	for _, q := range demand.Extended {
		best := math.Inf(1)
		for _, o := range all {
			if n := o.free.Get(q.Name); n > 0 {
				rest := o.price - w.cpu*float64(max(o.free.CPU, 0)) - w.memory*float64(max(o.free.Memory, 0))
				best = min(best, max(rest, o.price/10)/float64(n))
			}
		}
		if !math.IsInf(best, 1) {
			w.extended[string(q.Name)] = best
		}
	}
	return w
}

// best keeps the offers that no other beats in both CPU and memory a dollar: only those can bound a worth.
func best(offers []offer) []offer {
	sorted := slices.Clone(offers)
	slices.SortFunc(sorted, func(a, b offer) int {
		return cmp.Or(cmp.Compare(float64(b.free.CPU)/b.price, float64(a.free.CPU)/a.price), cmp.Compare(float64(b.free.Memory)/b.price, float64(a.free.Memory)/a.price))
	})
	var out []offer
	most := math.Inf(-1)
	for _, o := range sorted {
		if m := float64(o.free.Memory) / o.price; m > most {
			most = m
			out = append(out, o)
		}
	}
	return out
}
