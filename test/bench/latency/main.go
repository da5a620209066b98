// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command latency measures how long Slipway takes from a pod to the EC2 request and from a node to its pods, on a real
// control plane with the EC2 emulator. Machines boot at once, so that what is left is Slipway's own share.
//
// Figures (milliseconds unless said otherwise):
//
//	latency-single-p50, -p99   pod created (the API server has answered) → its CreateFleet request arrives, one pod at a time
//	latency-decision-p50       pod's filter failure → its CreateFleet request arrives, the same pods
//	latency-burst100-p99       pod seen on a watch → its CreateFleet request arrives, a Deployment of 100
//	latency-burst1000-last     first of 1,000 pods seen on a watch → the last CreateFleet request arrives
//	bind-after-ready-p99       node usable (Ready, registered, no taints) → the last of its 50 pods is bound, per node
//	second-launches            pods for which more than one node was bought
//	postfilter-p99             microseconds a scheduling cycle spends in Slipway's PostFilter
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	samples "github.com/slipway-sh/slipway/manifests/samples"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

//go:embed pools.yaml
var pools []byte

func main() {
	log.SetLogger(logr.Discard())
	binaries := flag.String("binaries", "bin", "folder of Slipway's binaries")
	singles := flag.Int("singles", 200, "single pods to measure")
	small := flag.Int("small", 100, "pods of the small burst")
	large := flag.Int("large", 1000, "pods of the large burst")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *binaries, *singles, *small, *large); err != nil {
		fmt.Fprintf(os.Stderr, "bench-latency: %v\n", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has run
	}
}

func run(ctx context.Context, binaries string, singles, small, large int) (err error) {
	b, err := bed.New(ctx, bed.Options{Binaries: binaries, Emulator: ec2emu.Options{Seed: 1, InstantBoot: true}})
	if err != nil {
		return err
	}
	defer func() {
		if e := b.Stop(); err == nil {
			err = e
		}
	}()
	watch, err := bed.NewObserver(ctx, b)
	if err != nil {
		return err
	}
	defer watch.Stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := b.StartSlipway(); err != nil {
		return err
	}
	go func() { cancel(b.Wait(ctx)) }()
	if err := measure(ctx, b, watch, singles, small, large); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return nil
}

func measure(ctx context.Context, b *bed.Bed, watch *bed.Observer, singles, small, large int) error {
	class, err := samples.Files.ReadFile("general/ec2nodeclass.yaml")
	if err != nil {
		return err
	}
	for _, m := range [][]byte{class, pools} {
		if err := b.Cluster.Apply(ctx, m); err != nil {
			return err
		}
	}
	ready, done := context.WithTimeout(ctx, time.Minute)
	defer done()
	if err := bed.AwaitReadyPools(ready, b, "single", "dense"); err != nil {
		return err
	}
	m := measurer{bed: b, watch: watch}
	if err := m.singles(ctx, singles); err != nil {
		return err
	}
	if err := m.burst(ctx, "small", small); err != nil {
		return err
	}
	if err := m.burst(ctx, "large", large); err != nil {
		return err
	}
	return m.print(ctx)
}
