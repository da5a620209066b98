// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command scale grows one cluster from 500 to 5,000 nodes and 100,000 pods, with 200 NodePools, and measures at each size how long the
// decision about a pod takes and what the processes use. Slipway buys every node itself from the EC2 emulator and binds one pod of
// each; the other nineteen are written to their nodes by this process, because no scheduler binds as fast, and run
// at once. Nodes are played by this process and not by kwok, which makes about twenty a second; they renew their leases every 40 s
// instead of 10, so that 5,000 of them leave the API server of this machine some time for others. Slipway's processes run without leader election: while pods are written
// by the thousand it is too busy for leases of 15 s.
//
// At each size, when nothing has changed for a while: processor time and memory of each process, then single pods that need a node each,
// one at a time (created → its CreateFleet request arrives; the legs are printed too). At the largest size both processes are started
// once more, beside everything that is there, and 5,000 pods come at once.
//
// Growth is the slope of a line through the sizes, both axes logarithmic: 0 does not grow, 1 is linear.
//
// Figures:
//
//	scale-N-latency-p99      single pods at the largest size, ms; -p50 too
//	scale-N-start            seconds from starting both processes to both being ready
//	scale-N-cpu, -memory     the process that uses most, percent of a core and MB
//	scale-N-calls            requests of all processes to the API server a minute, at rest
//	scale-N-burst-calls      requests of all processes to the API server for each pod of the burst
//	scale-exponent-memory    growth of the memory of the process that has most
//	scale-exponent           growth of the median latency
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/test/bench/fleet"
	"github.com/slipway-sh/slipway/test/cluster"
)

func main() { os.Exit(command()) }

type options struct {
	binaries, sizes      string
	pools, podsANode     int
	singles, burst       int
	calm, watched, lease time.Duration
}

func command() int {
	log.SetLogger(logr.Discard())
	var o options
	flag.StringVar(&o.binaries, "binaries", "bin", "folder of Slipway's binaries")
	flag.StringVar(&o.sizes, "sizes", "500,1000,2000,5000", "nodes, growing")
	flag.IntVar(&o.pools, "pools", 200, "NodePools")
	flag.IntVar(&o.podsANode, "pods", 20, "pods of each node")
	flag.IntVar(&o.singles, "singles", 60, "single pods to measure at each size")
	flag.IntVar(&o.burst, "burst", 5000, "pods that come at once at the largest size; 0 for none")
	flag.DurationVar(&o.calm, "calm", 20*time.Second, "how long nothing may have changed before something is measured")
	flag.DurationVar(&o.watched, "for", 30*time.Second, "how long the processes are watched at each size")
	flag.DurationVar(&o.lease, "lease", 40*time.Second, "how often nodes renew their leases")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "scale: %v\n", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, o options) error {
	var sizes []int
	for text := range strings.SplitSeq(o.sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || len(sizes) > 0 && n <= sizes[len(sizes)-1] {
			return fmt.Errorf("-sizes %q: want growing numbers", o.sizes)
		}
		sizes = append(sizes, n)
	}
	settings := fleet.Options{Binaries: o.binaries, Pools: o.pools, Kubelet: cluster.KubeletOptions{LeaseInterval: o.lease}}
	return fleet.On(ctx, settings, func(ctx context.Context, f *fleet.Fleet) error {
		g := &growth{Fleet: f, options: o, filled: map[string]bool{}}
		for _, n := range sizes {
			if err := g.stage(ctx, n); err != nil {
				return fmt.Errorf("%d nodes: %w", n, err)
			}
		}
		return g.finish(ctx)
	})
}
