// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command webhook measures admission in a process of its own: how fast reviews
// are decided one after the other, how long they take at a steady rate over
// HTTPS, what the process holds, and how long it takes to say whether a new kind
// of pod can ever run. The world is 20 policies, 50 NodePools, all instance types
// of us-east-1 and 5,000 pods. Then pods are created through a real API server
// that asks two installed replicas: without them, with them, with one that is
// black-holed, during a rolling update, with none left, and with a certificate
// that has expired. It asserts nothing.
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

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	log.SetLogger(logr.Discard())
	o := options{}
	flag.IntVar(&o.rate, "rate", 1500, "reviews a second")
	flag.DurationVar(&o.length, "for", time.Minute, "how long the rate is held")
	flag.IntVar(&o.creations, "creations", 200, "pods created a second, through an API server")
	flag.DurationVar(&o.creating, "creating", 10*time.Second, "how long pods are created in each situation; 0 leaves that part out")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench-webhook: %v\n", err)
		os.Exit(1)
	}
}

type figure struct {
	name  string
	value float64
	unit  string
}

type options struct {
	rate   int
	length time.Duration

	creations int
	creating  time.Duration
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
	figures := []figure{
		{"webhook-p50", steady.p50, "ms"},
		{"webhook-p99", steady.p99, "ms"},
		{"webhook-client-p99", steady.client99, "ms"},
		{"webhook-rate", rate, "per-second"},
		{"webhook-memory", steady.memory, "MB"},
		{"feasibility-p99", feasible, "ms"},
	}
	failures := steady.failures
	if o.creating > 0 {
		added, failed, err := reliability(ctx, o)
		if err != nil {
			return err
		}
		failures += failed
		figures = append(figures, figure{"webhook-added-p99", added, "ms"})
	}
	for _, f := range append(figures, figure{"webhook-failures", float64(failures), "count"}) {
		fmt.Printf("figure %s %.3f %s\n", f.name, f.value, f.unit)
	}
	return nil
}
