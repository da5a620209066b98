// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command aws measures how Slipway deals with EC2: the launcher, the interruption controller and the catalogue in this
// process, through the real SDK, against an emulated account that throttles as EC2 says it does.
//
// Figures (against an API server in memory unless said otherwise):
//
//	aws-cold-calls            EC2 calls before the CreateFleet call of a lone claim whose launch templates do not exist yet
//	aws-1000-mutating-calls   mutating EC2 calls until 1,000 claims of five shapes are launched and their nodes' names known,
//	                          with every tag of a launch on every instance from its first instant on
//	aws-1000-last             seconds from the first of these claims to the last of those calls and describes
//	aws-throttles             throttle errors meanwhile, while the catalogue is refreshed too
//	aws-ice-next-p99          milliseconds from a capacity error on the wire to the launch's next request on the wire
//	aws-ice-calls             with 95 % of the offerings dry: CreateFleet calls over the fewest possible
//	aws-shortage-recreated    NodeClaims that were given up, and so would be made again, although there was capacity
//	aws-refresh-stall         milliseconds a catalogue refresh adds to a launch's way to its request, 99th percentiles
//	aws-catalogue             megabytes of heap of the catalogue of one class
//	interruption-p99          milliseconds from a spot notice being visible in SQS to the CreateFleet call for its replacement,
//	                          1,000 notices within a second, on a real API server
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

	"github.com/slipway-sh/slipway/test/bed"
)

func main() { os.Exit(command()) }

func command() int {
	log.SetLogger(logr.Discard())
	notices := flag.Int("notices", 1000, "interruption notices to send; 0 leaves out the part that needs a control plane")
	only := flag.Bool("interruptions-only", false, "measure nothing but interruptions")
	profile := flag.String("cpuprofile", "", "write a CPU profile of the interruptions to this file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	do := run
	if *only {
		do = storm
	}
	if err := do(ctx, *notices, *profile); err != nil {
		fmt.Fprintf(os.Stderr, "bench-aws: %v\n", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, notices int, profile string) error {
	var memory catalogue
	if err := memory.measure(ctx); err != nil {
		return fmt.Errorf("measuring the catalogue: %w", err)
	}
	without, ahead, err := cold(ctx)
	if err != nil {
		return fmt.Errorf("launching from a cold start: %w", err)
	}
	all, err := launchThousand(ctx)
	if err != nil {
		return fmt.Errorf("launching 1,000 claims: %w", err)
	}
	var short shortage
	if err := short.iceNext(ctx); err != nil {
		return fmt.Errorf("launching past shortages: %w", err)
	}
	if err := short.iceCalls(ctx); err != nil {
		return fmt.Errorf("launching with 95 %% of the offerings dry: %w", err)
	}
	if err := short.replanned(ctx); err != nil {
		return fmt.Errorf("launching plans with 95 %% of the offerings dry: %w", err)
	}
	fmt.Printf("cold launch: %d EC2 calls before CreateFleet without launch templates, %d with templates made ahead\n", without, ahead)
	fmt.Printf("1,000 claims: the tags Name and karpenter.sh/nodeclaim differ from instance to instance, so they take a CreateTags call each; those %d calls come later, in the background and slowly, and are not counted\n", all.tagging)
	fmt.Printf("capacity errors: %d followed by another request, p50 %.2f ms; 95 %% dry: %d calls for %d launches, %d claims of plans\n", len(short.next), ms(bed.Quantile(short.next, 0.5)), short.calls, short.fewer, short.planned)
	fmt.Printf("catalogue of %d types; launch to request p50 %.2f ms, p99 %.2f ms, while it is refreshed p50 %.2f ms, p99 %.2f ms\n", memory.types,
		ms(bed.Quantile(memory.quiet, 0.5)), ms(bed.Quantile(memory.quiet, 0.99)), ms(bed.Quantile(memory.refreshing, 0.5)), ms(bed.Quantile(memory.refreshing, 0.99)))

	figure("aws-cold-calls", float64(without), "count")
	figure("aws-1000-mutating-calls", float64(all.mutating), "count")
	figure("aws-1000-last", all.last.Seconds(), "s")
	figure("aws-throttles", float64(all.throttles), "count")
	figure("aws-ice-next-p99", ms(bed.Quantile(short.next, 0.99)), "ms")
	figure("aws-ice-calls", float64(short.calls)/float64(short.fewer), "ratio")
	figure("aws-shortage-recreated", float64(short.given), "count")
	figure("aws-refresh-stall", ms(memory.stall()), "ms")
	figure("aws-catalogue", memory.megabytes, "MB")
	return storm(ctx, notices, profile)
}

// storm measures interruptions.
func storm(ctx context.Context, notices int, profile string) error {
	if notices == 0 {
		return nil
	}
	s := interruptions{profile: profile}
	if err := s.measure(ctx, notices); err != nil {
		return fmt.Errorf("measuring interruptions: %w", err)
	}
	s.print()
	figure("interruption-p99", ms(bed.Quantile(s.requested, 0.99)), "ms")
	return nil
}

func figure(name string, value float64, unit string) {
	fmt.Printf("figure %s %.3f %s\n", name, value, unit)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
