// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command scheduler measures what Slipway costs kube-scheduler in a large cluster whose pods all fit: the same scheduler is
// run with and without it, in turns, over the same nodes and pods. The API server is left out of it: objects are listed from
// memory and bindings are answered at once, so that the scheduler's own work is all there is.
//
// Slipway is the plugin with its hooks, the filter, the gate, and a provisioner whose view follows nodes and pods. The
// catalogue of what EC2 sells is not part of it: it does not grow with the cluster.
//
// Bursts are measured beside it: pods that fit nowhere are all there when the scheduler starts, and the time is taken until the launch of
// their nodes is handed over: cycles, plans over all that EC2 sells, the judge and the claims, which are written to memory. On
// a machine of a few cores a real API server would take most of that time (bench-latency, burst-1000-cluster); what the launcher
// adds before its request is on the wire is in bench-aws.
//
// Figures:
//
//	burst-first            the scheduler starts → the first launch, the median of bursts of 1,000 and 10,000 pods
//	burst-1000, -10000     → the last launch, seconds
//	postfilter-p50, -p99   microseconds a cycle of the bursts spends in Slipway's PostFilter, over all of them
//	scheduler-throughput   pods a second of processor time with Slipway / without, the best turn of each: whatever else the
//	                       machine does only ever adds. The ratio by the clock is printed beside it
//	scheduler-throughput-unfit  pods that fit bound in a second with Slipway / without, where most pods do not fit and each
//	                       status write takes 2 ms, the median
//	scheduler-memory       heap in use with Slipway / without, after the last pod is bound, the objects themselves included
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() { os.Exit(command()) }

func command() int {
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	var n size
	flag.IntVar(&n.nodes, "nodes", 5000, "nodes")
	flag.IntVar(&n.running, "running", 50000, "pods that run on them")
	flag.IntVar(&n.pending, "pending", 5000, "pods to schedule")
	turns := flag.Int("turns", 3, "how often each is run")
	times := flag.Int("bursts", 3, "how often bursts are run; 0 leaves them out")
	crowded := flag.Int("crowds", 3, "how often schedulers are compared where most pods do not fit; 0 leaves that out")
	flag.StringVar(&n.profiles, "profiles", "", "folder to write processor profiles of the turns to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, n, *turns, *times, *crowded); err != nil {
		fmt.Fprintf(os.Stderr, "bench-scheduler: %v\n", err)
		return 1
	}
	return 0
}

// size is that of the cluster.
type size struct {
	nodes, running, pending int
	profiles                string // folder for processor profiles, "" for none
}

func run(ctx context.Context, n size, turns, times, crowded int) error {
	// Before anything fills the heap.
	if times > 0 {
		if err := bursts(ctx, times); err != nil {
			return err
		}
	}
	if crowded > 0 {
		if err := crowds(ctx, crowded); err != nil {
			return err
		}
	}
	if turns == 0 {
		return nil
	}
	objects := n.objects()
	var memory []float64
	best := [2]result{} // without, with
	for i := range turns {
		var got [2]result
		// Whoever goes first in one turn goes second in the next.
		for k := range got {
			with := (i + k) % 2
			r, err := n.measure(ctx, objects, with == 1)
			if err != nil {
				return err
			}
			got[with] = r
			best[with] = best[with].better(r)
		}
		without, with := got[0], got[1]
		fmt.Printf("turn %d: %s without, %s with\n", i+1, without.describe(n.pending), with.describe(n.pending))
		memory = append(memory, with.heap/without.heap)
	}
	fmt.Printf("%d nodes, %d running pods, %d pods scheduled a turn; throughput by the clock: ratio %.3f\n", n.nodes, n.running, n.pending, best[0].took.Seconds()/best[1].took.Seconds())
	fmt.Printf("figure scheduler-throughput %.3f ratio\nfigure scheduler-memory %.3f ratio\n", best[0].cpu.Seconds()/best[1].cpu.Seconds(), median(memory))
	return nil
}

// better is the shorter of the times of two runs.
func (r result) better(o result) result {
	if r.took == 0 {
		return o
	}
	return result{took: min(r.took, o.took), cpu: min(r.cpu, o.cpu)}
}

func (r result) describe(pods int) string {
	return fmt.Sprintf("%.0f pods/s (%.0f a second of processor time), %.0f MiB", float64(pods)/r.took.Seconds(), float64(pods)/r.cpu.Seconds(), r.heap)
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
