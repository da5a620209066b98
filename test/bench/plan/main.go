// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command plan measures provisioner/plan and scheduler/simulate: how fast, how cheap, how large. No cluster, no network.
//
// Run it as `make bench-plan`, parts of it with ARGS="-only peer,cost". Package mix says what is planned, package bound
// what a plan is compared with, package greedy which simple planners pack the same input beside it. Times are medians of
// at least three runs of plan.Solve, one at a time; the input is built before.
//
// Parts and their figures:
//
//	peer      plan-peer-N-ms              the mix of Karpenter's published scheduling benchmark, N pods
//	          plan-peer-20000-rss         peak resident memory of a process that builds 20,000 pods and plans them once
//	real      plan-real-10000-ms          60 workloads over everything EC2 sells, five pools, no topology rules
//	          plan-real-10000-cost        price over the lower bound
//	          plan-real-10000-concentration  of the workloads with 100 pods or more, the largest share of one that is on one node
//	cost      plan-cost-mean, -worst      price over the lower bound, over all mixes without topology rules of 500 to 10,000
//	                                      pods, with nodes of at most 16, 32 or any vCPU
//	topology  plan-topology-10000-ms      the real mix with all kinds of topology rules
//	          plan-topology-10000-cost    price over a bound that knows some of the rules
//	          plan-topology-cost-mean, -worst   over all topology mixes of 500 to 10,000 pods
//	judge     judge-pod                   microseconds scheduler/simulate takes a pod, without spread rules, at 1,000 nodes
//	          judge-share                 time spent judging over the time of the rest of the batch path at 1,000 pods
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/test/bench/plan/mix"
)

func main() { os.Exit(command()) }

// options are the command's flags.
type options struct {
	only    string
	trace   string
	seed    uint64
	explain int
	child   int
}

func command() int {
	log.SetLogger(logr.Discard())
	var o options
	flag.StringVar(&o.only, "only", "peer,real,cost,topology,judge", "parts to run")
	flag.StringVar(&o.trace, "openb", "../shared/data/openb/openb_pod_list_default.csv", "pods of Alibaba's GPU cluster trace of 2023")
	flag.Uint64Var(&o.seed, "seed", 1, "of all draws")
	flag.IntVar(&o.explain, "explain", 0, "print what the plan buys beside what the bound's program buys, for so many of the dearest mixes")
	flag.IntVar(&o.child, "child", 0, "plan so many pods of the peer's mix once and print the peak memory; used by the command itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "bench-plan: %v\n", err)
		return 1
	}
	return 0
}

// report is what the parts write to: tables as they go, figures at the end.
type report struct {
	options

	maker   *mix.Maker
	figures []string
}

func (r *report) figure(name string, value float64, unit string) {
	r.figures = append(r.figures, fmt.Sprintf("figure %s %.3f %s", name, value, unit))
}

func run(ctx context.Context, o options) error {
	if o.child > 0 {
		return child(o)
	}
	r := &report{options: o, maker: &mix.Maker{Seed: o.seed}}
	var err error
	if r.maker.Catalog, err = mix.EC2(ctx); err != nil {
		return err
	}
	if err := r.readTrace(); err != nil {
		return err
	}
	parts := map[string]func(context.Context) error{"peer": r.peer, "real": r.real, "cost": r.cost, "topology": r.topology, "judge": r.judge}
	for name := range strings.SplitSeq(o.only, ",") {
		part, ok := parts[name]
		if !ok {
			return fmt.Errorf("-only %q: there is no such part", name)
		}
		if err := part(ctx); err != nil {
			return fmt.Errorf("part %s: %w", name, err)
		}
	}
	for _, f := range r.figures {
		fmt.Println(f)
	}
	return nil
}

func (r *report) readTrace() error {
	f, err := os.Open(r.trace)
	if os.IsNotExist(err) {
		fmt.Printf("NOTE: no trace at %s: the openb mixes are LEFT OUT of this run and of its mean and worst\n", r.trace)
		return nil
	}
	if err != nil {
		return err
	}
	r.maker.Openb, err = mix.ReadOpenb(f)
	return errorsFirst(err, f.Close())
}

func errorsFirst(errs ...error) error {
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if i < 0 {
		return nil
	}
	return errs[i]
}
