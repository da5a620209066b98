// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-sh/slipway/test/bench/plan/mix"
)

// peer measures the mix of Karpenter's benchmark.
func (r *report) peer(context.Context) error {
	cat := mix.Peer()
	fmt.Println("Karpenter's benchmark mix (its version 1.14.1 plans 185 to 600 of these pods a second on two cores)")
	for _, n := range []int{1, 100, 1000, 10000, 20000} {
		in := mix.PeerPods(cat, n, r.seed)
		took, result := measure(in, runsFor(n))
		fmt.Printf("  %6d pods: %8.2f ms, %9.0f pods/s, %5d nodes, %9.2f $/h, %d unplaced\n",
			n, ms(took), float64(n)/took.Seconds(), len(result.Launches), price(result), len(result.Unplaced))
		r.figure(fmt.Sprintf("plan-peer-%d-ms", n), ms(took), "ms")
	}
	mb, err := r.peakMemory(20000)
	if err != nil {
		return err
	}
	r.figure("plan-peer-20000-rss", mb, "MB")
	return nil
}

// real measures the real mix at its largest.
func (r *report) real(context.Context) error {
	const n = 10000
	in, err := r.maker.Make("real", n, 0)
	if err != nil {
		return err
	}
	c := &comparison{name: "real", in: in}
	c.solve(runsFor(n))
	if err := compare([]*comparison{c}); err != nil {
		return err
	}
	fmt.Println("real mix: everything EC2 sells, five pools")
	printTable([]*comparison{c})
	if r.options.explain > 0 {
		c.explain()
	}
	r.figure("plan-real-10000-ms", ms(c.took), "ms")
	r.figure("plan-real-10000-cost", c.ratio(), "ratio")
	r.figure("plan-real-10000-concentration", c.densest, "ratio")
	return nil
}

// sizes are the numbers of pods of the mixes whose price is looked at.
func sizes() []int { return []int{500, 1000, 2000, 5000, 10000} }

// cost compares prices over all mixes without topology rules.
func (r *report) cost(context.Context) error {
	var all []*comparison
	for _, name := range mix.Names() {
		var batch []*comparison
		for _, cores := range []int{16, 32, 0} {
			var after *comparison
			for _, n := range sizes() {
				in, err := r.maker.Make(name, n, cores)
				if errors.Is(err, mix.ErrNoTrace) {
					continue
				}
				if err != nil {
					return fmt.Errorf("mix %s of %d pods: %w", name, n, err)
				}
				c := &comparison{name: name, cores: cores, in: in, after: after}
				c.solve(1)
				batch, after = append(batch, c), c
			}
		}
		if err := compare(batch); err != nil {
			return err
		}
		all = append(all, batch...)
	}
	fmt.Println("mixes without topology rules")
	r.summarize("plan-cost", all)
	return nil
}

// topology compares prices, and measures the largest mix, with topology rules.
func (r *report) topology(context.Context) error {
	var all []*comparison
	var largest *comparison
	for _, name := range mix.TopologyNames() {
		for _, n := range []int{500, 2000, 10000} {
			in, err := r.maker.Topology(name, n)
			if err != nil {
				return fmt.Errorf("topology mix %s of %d pods: %w", name, n, err)
			}
			c := &comparison{name: name, in: in}
			c.solve(1)
			all = append(all, c)
			largest = c
		}
	}
	largest.solve(runsFor(largest.pods))
	if err := compare(all); err != nil {
		return err
	}
	fmt.Println("mixes with topology rules")
	r.summarize("plan-topology-cost", all)
	r.figure("plan-topology-10000-ms", ms(largest.took), "ms")
	r.figure("plan-topology-10000-cost", largest.ratio(), "ratio")
	return nil
}
