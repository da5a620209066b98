// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command idle measures what Slipway costs while nothing happens: 1,000 nodes that it has bought itself from the EC2 emulator, with
// three pods each, consolidation on and nothing to consolidate, scheduler and controller as installed (leases and all) and one
// replica of the webhook. Kubelets renew their leases as they do everywhere; no pod comes or goes.
//
// When nothing has changed for a while the processes are watched. Processor time and memory are what they say of themselves in
// /metrics; requests are what the API server's audit log and the emulator have noted.
//
// Figures:
//
//	idle-cpu         processor time of the process that takes most, in percent of a core
//	idle-memory      resident memory of the process that has most, MB
//	idle-calls       requests of all three processes to the API server a minute, renewals of leases included
//	idle-calls-aws   requests of all three to AWS a minute
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/test/bench/fleet"
)

func main() { os.Exit(command()) }

type options struct {
	binaries     string
	nodes        int
	calm, length time.Duration
}

func command() int {
	log.SetLogger(logr.Discard())
	var o options
	flag.StringVar(&o.binaries, "binaries", "bin", "folder of Slipway's binaries")
	flag.IntVar(&o.nodes, "nodes", 1000, "nodes of the cluster")
	flag.DurationVar(&o.calm, "calm", 45*time.Second, "how long nothing may have changed before the processes are watched")
	flag.DurationVar(&o.length, "for", 2*time.Minute, "how long they are watched")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := fleet.On(ctx, fleet.Options{Binaries: o.binaries, Pools: 1}, func(ctx context.Context, f *fleet.Fleet) error { return measure(ctx, f, o) })
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench-idle: %v\n", err)
		return 1
	}
	return 0
}
