// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command plan measures provisioner/plan: how fast, how cheap, how large. Nothing runs beside it.
//
// Figures:
//
//	plan-peer-N-ms         the mix of Karpenter's published scheduling benchmark (400 types, five kinds of pods), N pods
//	plan-real-10000-ms     10,000 pods of 60 workloads over everything EC2 sells, no topology rules
//	plan-real-10000-cost   its price over a lower bound no plan can go below (see lowerBound)
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-sh/slipway/provisioner/plan"
)

func typesUID(s string) types.UID { return types.UID(s) }

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintf(os.Stderr, "bench-plan: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	figure := func(name string, value float64, unit string) { fmt.Printf("figure %s %.3f %s\n", name, value, unit) }
	for _, n := range []int{1, 100, 1000, 10000} {
		in := peerInput(n, 1)
		took, r := measure(in)
		fmt.Printf("peer mix, %d pods: %d nodes, %.2f $/h, %d unplaced\n", n, len(r.Launches), price(r), len(r.Unplaced))
		figure(fmt.Sprintf("plan-peer-%d-ms", n), ms(took), "ms")
	}
	cat, err := realCatalog(ctx)
	if err != nil {
		return err
	}
	in := realInput(cat, 10000, 1)
	took, r := measure(in)
	bound := lowerBound(in)
	fmt.Printf("real mix, %d pods: %d nodes, %.2f $/h, lower bound %.2f $/h, %d unplaced\n", len(in.Pods), len(r.Launches), price(r), bound, len(r.Unplaced))
	figure("plan-real-10000-ms", ms(took), "ms")
	figure("plan-real-10000-cost", price(r)/bound, "ratio")
	return nil
}

// measure plans the input three times and returns the median time.
func measure(in plan.Input) (time.Duration, plan.Result) {
	var times []time.Duration
	var r plan.Result
	for range 3 {
		start := time.Now()
		r = plan.Solve(in)
		times = append(times, time.Since(start))
	}
	slices.SortFunc(times, cmp.Compare[time.Duration])
	return times[1], r
}

func price(r plan.Result) float64 {
	sum := 0.0
	for i := range r.Launches {
		sum += r.Launches[i].Price()
	}
	return sum
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
