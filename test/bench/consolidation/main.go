// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command consolidation measures package disruption: how fast it decides, how cheap clusters get and for how much
// disturbance, and whether anything is disrupted that must not be. One process, no cluster, no network.
//
// Run it as `make bench-consolidation`, parts of it with ARGS="-only pass,cost". Package model is the cluster in which
// decisions are carried out at once, package sim the one in which the controller carries them out itself.
//
// Parts and their figures:
//
//	pass        consolidation-pass-N s       one decision over N nodes with 20 N pods at 40 % use, everything to be looked at
//	            consolidation-memory MB      peak resident memory of the process after the pass of 5,000 nodes
//	incremental consolidation-incremental ms one decision after a pod came or went, 1,000 full nodes at rest with some 50,000 pods (p99)
//	shrink      shrink-1000 s                75 % of the pods of 1,000 nodes go at once: time spent deciding until the price is
//	                                         within 3 % of the bound (booting and draining not included)
//	            shrink-1000-cost ratio       price at rest over the bound
//	            shrink-1000-tenth-cost ratio the same under a budget of 10 %: what the nodes cost until nobody could be above
//	                                         the bound any more, over the least that budget allows
//	cost        consolidation-cost ratio     300 nodes run to rest: price over the bound
//	            consolidation-replaced-twice count          nodes bought by consolidation and taken away by it again
//	            consolidation-evictions-per-dollar count    pods moved for each dollar an hour saved
//	churn       churn-bought-and-removed count  10 % of the pods replaced each minute for half an hour: nodes bought and removed
//	                                         within 10 minutes while pods ran on them
//	drift       drift-500-violations count   500 nodes drift under a budget of 10 %: instants with more than that in flight,
//	                                         budgets of pods broken, and nodes not replaced
//	violations  disruption-violations count  seeded runs in which budgets, PodDisruptionBudgets and annotations change meanwhile
//	moves       moves-50-unready s           fifty workloads of one replica leave their nodes: how long they were without a ready
//	                                         pod, together; drained by package drain, with their controllers played
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"strings"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/bench/plan/mix"
)

func main() { os.Exit(command()) }

func command() int {
	log.SetLogger(logr.Discard())
	r := &report{}
	flag.StringVar(&r.only, "only", "pass,incremental,shrink,cost,churn,drift,violations,moves", "parts to run")
	flag.Uint64Var(&r.seed, "seed", 1, "of all draws")
	flag.IntVar(&r.runs, "runs", 200, "seeded runs of part violations")
	profile := flag.String("cpuprofile", "", "file for a profile of the processor")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "bench-consolidation: %v\n", err)
			return 1
		}
		defer pprof.StopCPUProfile()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "bench-consolidation: %v\n", err)
		return 1
	}
	return 0
}

// report is what the parts write to: text as they go, figures at the end.
type report struct {
	only    string
	seed    uint64
	runs    int
	catalog *capacity.Catalog
	figures []string
}

func (r *report) figure(name string, value float64, unit string) {
	r.figures = append(r.figures, fmt.Sprintf("figure %s %.3f %s", name, value, unit))
}

func (r *report) run(ctx context.Context) error {
	var err error
	if r.catalog, err = mix.EC2(ctx); err != nil {
		return err
	}
	parts := map[string]func(context.Context) error{
		"pass": r.pass, "incremental": r.incremental, "shrink": r.shrink, "cost": r.cost, "churn": r.churn, "drift": r.drift, "violations": r.violations, "moves": r.moves,
	}
	for name := range strings.SplitSeq(r.only, ",") {
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
