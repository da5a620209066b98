// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command ship measures what a user meets first: the size of the binaries, the CLI's plan, an installation from its rendered
// manifests, and the start of the processes in a cluster that has nodes already. It takes the binaries `make build` has made.
//
// Figures:
//
//	size-webhook, size-controller  megabytes (10^6 bytes) of the binary
//	plan-cli-1000                  seconds of `slipway plan` for 1,000 pods of ten workloads, the process's start included; the median of its runs
//	install-first-pod              seconds from applying the rendered installation, over its processes, the node class and the pool,
//	                               to the first pod running on a bought node. Machines boot at once; images are not pulled.
//	top-cpu                        processor time of `slipway top` in a terminal, in percent of a core, beside 1,000 nodes and 2,000 pods, while
//	                               five pods come and five go a second (Linux only)
//	start-1000                     seconds from starting both processes to both being ready, in a cluster of 1,000 nodes and NodeClaims
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() { os.Exit(command()) }

func command() int {
	log.SetLogger(logr.Discard())
	var o options
	flag.StringVar(&o.binaries, "binaries", "bin", "folder of Slipway's binaries")
	flag.IntVar(&o.nodes, "nodes", 1000, "nodes in the cluster when the processes start")
	flag.IntVar(&o.pods, "pods", 1000, "pods to plan")
	flag.IntVar(&o.runs, "runs", 5, "how often the plan is made")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "bench-ship: %v\n", err)
		return 1
	}
	return 0
}

type options struct {
	binaries          string
	nodes, pods, runs int
}

func run(ctx context.Context, o options) error {
	webhook, err := megabytes(o.binaries, "slipway-webhook")
	if err != nil {
		return err
	}
	controller, err := megabytes(o.binaries, "slipway-controller")
	if err != nil {
		return err
	}
	plan, err := plan(ctx, o)
	if err != nil {
		return fmt.Errorf("planning %d pods: %w", o.pods, err)
	}
	first, err := firstPod(ctx, o)
	if err != nil {
		return fmt.Errorf("installing: %w", err)
	}
	start, top, err := start(ctx, o)
	if err != nil {
		return fmt.Errorf("starting beside %d nodes: %w", o.nodes, err)
	}
	figure("install-first-pod", first.Seconds(), "s")
	figure("plan-cli-1000", plan.Seconds(), "s")
	figure("top-cpu", top, "percent")
	figure("size-webhook", webhook, "MB")
	figure("size-controller", controller, "MB")
	figure("start-1000", start.Seconds(), "s")
	return nil
}

func megabytes(folder, binary string) (float64, error) {
	info, err := os.Stat(filepath.Join(folder, binary))
	if err != nil {
		return 0, fmt.Errorf("measuring %s (run make build first): %w", binary, err)
	}
	return float64(info.Size()) / 1e6, nil
}

func figure(name string, value float64, unit string) {
	fmt.Printf("figure %s %.3f %s\n", name, value, unit)
}
