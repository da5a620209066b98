// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command webhook measures admission in a process of its own: how fast reviews
// are decided one after the other, how long they take at a steady rate over
// HTTPS, what the process holds, and how long it takes to say whether a new kind
// of pod can ever run. The world is 20 policies, 50 NodePools, all instance types
// of us-east-1 and 5,000 pods. It asserts nothing.
//
// The last lines of its output are figures: `figure <name> <value> <unit>`.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	o := options{}
	flag.IntVar(&o.rate, "rate", 1500, "reviews a second")
	flag.DurationVar(&o.length, "for", time.Minute, "how long the rate is held")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench-webhook: %v\n", err)
		os.Exit(1)
	}
}

type options struct {
	rate   int
	length time.Duration
}

func run(ctx context.Context, o options) error {
	w, err := newWorld(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%d policies, %d pools, %d types, %d pods\n", policies, pools, w.types, pods)
	feasible := w.feasibility()
	rate, err := w.oneCore(ctx)
	if err != nil {
		return err
	}
	steady, err := w.steady(ctx, o)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name  string
		value float64
		unit  string
	}{
		{"webhook-p50", steady.p50, "ms"},
		{"webhook-p99", steady.p99, "ms"},
		{"webhook-client-p99", steady.client99, "ms"},
		{"webhook-rate", rate, "per-second"},
		{"webhook-memory", steady.memory, "MB"},
		{"webhook-failures", float64(steady.failures), "count"},
		{"feasibility-p99", feasible, "ms"},
	} {
		fmt.Printf("figure %s %.3f %s\n", f.name, f.value, f.unit)
	}
	return nil
}
