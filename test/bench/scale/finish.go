// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-sh/slipway/test/bench/fleet"
)

// finish measures what is measured at the largest size only, and prints the figures.
func (g *growth) finish(ctx context.Context) error {
	last := &g.at[len(g.at)-1]
	name := fmt.Sprintf("scale-%d", last.nodes)
	start, err := g.start(ctx)
	if err != nil {
		return fmt.Errorf("starting again: %w", err)
	}
	calls, took := 0.0, time.Duration(0)
	if g.burst > 0 {
		if calls, took, err = g.manyPods(ctx); err != nil {
			return fmt.Errorf("a burst of %d pods: %w", g.burst, err)
		}
	}
	if g.burst > 0 {
		fmt.Printf("a burst of %d pods: all run after %.1f s\n", g.burst, took.Seconds())
		figure(name+"-burst-calls", calls, "per-pod")
	}
	figure(name+"-start", start.Seconds(), "s")
	figure(name+"-cpu", last.cpu, "percent")
	figure(name+"-memory", last.memory, "MB")
	figure(name+"-calls", last.callsAMinute, "per-minute")
	figure(name+"-latency-p50", ms(last.p50), "ms")
	figure(name+"-latency-p99", ms(last.p99), "ms")
	if len(g.at) > 1 {
		figure("scale-exponent-memory", exponent(g.at, func(s *stage) float64 { return s.memory }), "ratio")
		figure("scale-exponent", exponent(g.at, func(s *stage) float64 { return ms(s.p50) }), "ratio")
	}
	return nil
}

// start kills both processes, starts them again and waits until they are ready.
func (g *growth) start(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fleet.Limit, fmt.Errorf("not within %v", fleet.Limit))
	defer cancel()
	if err := g.Restart(ctx, false); err != nil { // returns when they have been started
		return 0, err
	}
	began := time.Now()
	err := g.AwaitReady(ctx)
	return time.Since(began), err
}

// manyPods has a Deployment of pods come at once, of which a node holds twenty, and counts the requests for each.
func (g *growth) manyPods(ctx context.Context) (calls float64, took time.Duration, err error) {
	if err := g.Rest(ctx, g.calm); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := g.Deploy(ctx, "burst", g.options.burst, fleet.Spec("180m", "256Mi")); err != nil {
		return 0, 0, err
	}
	took = time.Since(began)
	of, err := g.Calls.Between(began, began.Add(took))
	return float64(sum(of)) / float64(g.options.burst), took, err
}

func figure(name string, value float64, unit string) {
	fmt.Printf("figure %s %.3f %s\n", name, value, unit)
}
