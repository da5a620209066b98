// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/bench/fleet"
)

const (
	// smallPerNode pods fit beside the large one of each node.
	smallPerNode = 2
	// parts is how many slices the time of watching is told in.
	parts = 6
)

// measure fills the cluster, waits until it is at rest, watches the processes and prints the figures.
func measure(ctx context.Context, f *fleet.Fleet, o options) error {
	began := time.Now()
	if err := f.Buy(ctx, "large", o.nodes); err != nil {
		return err
	}
	bought := time.Since(began)
	if err := f.Deploy(ctx, "small", smallPerNode*o.nodes, fleet.Spec("100m", "128Mi")); err != nil {
		return err
	}
	filled := time.Now()
	fmt.Printf("%d nodes bought in %.0f s, %d pods run after %.0f s\n", o.nodes, bought.Seconds(), (1+smallPerNode)*o.nodes, filled.Sub(began).Seconds())
	if err := f.Restart(ctx, true); err != nil {
		return err
	}
	if err := f.Rest(ctx, o.calm); err != nil {
		return err
	}
	fmt.Printf("nothing has changed for %v, %.0f s after the last pod ran\n", o.calm, time.Since(filled).Seconds())
	requests, from := len(f.Emulator.Requests()), time.Now()
	steady, err := f.Steady(ctx, o.length/parts, parts)
	if err != nil {
		return err
	}
	calls, err := f.Calls.Between(from, from.Add(steady.Took))
	if err != nil {
		return err
	}
	cpu, memory := 0.0, 0.0
	for _, p := range fleet.Processes() {
		fmt.Printf("%-20s %.2f %% of a core over %.0f s (in slices: %.2f), %.0f MB\n", p, steady.CPU[p], steady.Took.Seconds(), steady.Slices[p], steady.Memory[p])
		cpu, memory = max(cpu, steady.CPU[p]), max(memory, steady.Memory[p])
	}
	toAPI, toAWS := list(calls), aws(f, requests)
	figure("idle-memory", memory, "MB")
	figure("idle-calls", float64(toAPI)/steady.Took.Minutes(), "per-minute")
	figure("idle-calls-aws", float64(toAWS)/steady.Took.Minutes(), "per-minute")
	figure("idle-cpu", cpu, "percent")
	return nil
}

// list prints the requests to the API server, the most frequent first, and returns how many they are.
func list(calls map[bed.Call]int) int {
	sum := 0
	keys := slices.SortedFunc(maps.Keys(calls), func(a, b bed.Call) int {
		return cmp.Or(calls[b]-calls[a], cmp.Compare(a.Account, b.Account), cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Resource, b.Resource))
	})
	for _, k := range keys {
		fmt.Printf("  %4d × %s: %s %s\n", calls[k], k.Account, k.Verb, k.Resource)
		sum += calls[k]
	}
	return sum
}

// aws prints the requests to AWS after the first n, and returns how many they are.
func aws(f *fleet.Fleet, n int) int {
	kinds, all := map[string]int{}, f.Emulator.Requests()[n:]
	for i := range all {
		kinds[all[i].Service+":"+all[i].Action]++
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Printf("  %4d × %s\n", kinds[kind], kind)
	}
	return len(all)
}

func figure(name string, value float64, unit string) {
	fmt.Printf("figure %s %.3f %s\n", name, value, unit)
}
