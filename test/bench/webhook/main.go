// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command webhook measures admission: how fast reviews are decided one after the
// other, how long it takes to say whether a new kind of pod can ever run, how long
// reviews take at a steady rate over HTTPS against a process of its own, and how
// much memory slipway-webhook takes as installed while it answers at that rate.
// The world is 20 policies, 50 NodePools, all instance types of us-east-1 and
// 5,000 pods. Then pods are created through a real API server
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
	"slices"
	"strings"
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
	flag.DurationVar(&o.creating, "creating", 10*time.Second, "how long pods are created in each situation")
	flag.StringVar(&o.profiles, "profiles", "", "folder for the API server's CPU profile in each situation; none if empty")
	serve := flag.Bool("serve", false, "answer reviews until standard input ends; for this command's own use")
	only := flag.String("only", strings.Join(parts(), ","), "what is measured")
	flag.Parse()
	o.only = strings.Split(*only, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	work := func() error { return run(ctx, o) }
	if *serve {
		work = func() error { return serveWorld(ctx) }
	}
	err := work()
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench-webhook: %v\n", err)
		os.Exit(1)
	}
}

// parts are what can be measured by itself: what a review costs, how long it takes to say whether a pod can ever run, reviews at
// a steady rate over HTTPS, the memory of the installed process, and the creation of pods through an API server.
func parts() []string { return []string{"reviews", "feasibility", "steady", "memory", "creations"} }

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
	profiles  string
	only      []string
}

func (o *options) has(part string) bool { return slices.Contains(o.only, part) }

func run(ctx context.Context, o options) error {
	for _, part := range o.only {
		if !slices.Contains(parts(), part) {
			return fmt.Errorf("-only: there is no part %q: %s", part, strings.Join(parts(), ", "))
		}
	}
	var figures []figure
	failures := 0
	for _, part := range []struct {
		wanted  bool
		measure func(context.Context, options) ([]figure, int, error)
	}{
		{o.has("reviews") || o.has("feasibility"), reviews}, {o.has("steady"), overHTTPS}, {o.has("memory"), memory}, {o.has("creations"), reliability},
	} {
		if !part.wanted {
			continue
		}
		more, failed, err := part.measure(ctx, o)
		if err != nil {
			return err
		}
		figures, failures = append(figures, more...), failures+failed
	}
	for _, f := range append(figures, figure{"webhook-failures", float64(failures), "count"}) {
		fmt.Printf("figure %s %.3f %s\n", f.name, f.value, f.unit)
	}
	return nil
}

// reviews measures the handler in this process.
func reviews(ctx context.Context, o options) (figures []figure, failures int, err error) {
	w, err := newWorld(ctx)
	if err != nil {
		return nil, 0, err
	}
	fmt.Printf("%d policies, %d pools, %d types, %d pods\n", policies, pools, w.types, pods)
	if o.has("feasibility") {
		figures = append(figures, figure{"feasibility-p99", w.feasibility(), "ms"})
	}
	if o.has("reviews") {
		rate, err := w.oneCore(ctx)
		if err != nil {
			return nil, 0, err
		}
		figures = append(figures, figure{"webhook-rate", rate, "per-second"})
	}
	return figures, 0, nil
}

// overHTTPS measures reviews at a steady rate.
func overHTTPS(ctx context.Context, o options) ([]figure, int, error) {
	got, err := steady(ctx, o)
	return []figure{{"webhook-p50", got.p50, "ms"}, {"webhook-p99", got.p99, "ms"}, {"webhook-client-p99", got.client99, "ms"}}, got.failures, err
}

func serveWorld(ctx context.Context) error {
	w, err := newWorld(ctx)
	if err != nil {
		return err
	}
	return w.serve()
}
