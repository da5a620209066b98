// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/cluster"
	"github.com/slipway-sh/slipway/test/ec2emu"
	"github.com/slipway-sh/slipway/test/peer"
)

// stepLimit bounds each step. Karpenter's slowest own period on the way is its lease.
const stepLimit = 4 * time.Minute

type options struct {
	karpenter, scheduler, binaries string
	nodes                          int
}

func main() {
	log.SetLogger(logr.Discard())
	o := options{}
	flag.StringVar(&o.karpenter, "karpenter", "bin/compare/karpenter", "the stock Karpenter controller")
	flag.StringVar(&o.scheduler, "scheduler", "bin/compare/kube-scheduler", "the stock kube-scheduler")
	flag.StringVar(&o.binaries, "binaries", "bin", "folder of Slipway's binaries")
	flag.IntVar(&o.nodes, "nodes", 50, "running nodes that are moved")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "compare-migrate:", err)
		os.Exit(1)
	}
}

func run(o options) (err error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	for _, path := range []*string{&o.karpenter, &o.scheduler, &o.binaries} {
		if *path, err = filepath.Abs(*path); err != nil {
			return fmt.Errorf("locating binaries: %w", err)
		}
	}
	say := peer.NewTeller().Say
	b, err := bed.New(ctx, bed.Options{
		Binaries: o.binaries, SchedulerArgs: []string{serve},
		Emulator: ec2emu.Options{Seed: 1, InstantBoot: true}, Cluster: cluster.Options{Progress: say},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	kube, err := client.New(b.Cluster.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	h := &host{bed: b, kube: kube, opts: o}
	failed := make(chan error, 1)
	hosted, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() { failed <- h.run(hosted) }()
	go func() {
		if err := <-failed; err != nil {
			end(err)
		}
	}()
	p := &proof{bed: b, kube: kube, opts: o, say: say}
	if err := p.play(hosted); err != nil {
		return errors.Join(err, context.Cause(hosted))
	}
	return nil
}

// play goes through the steps of the package's description.
func (p *proof) play(ctx context.Context) error {
	steps := []peer.Step{
		{What: "Karpenter is at work", Do: p.start},
		{What: fmt.Sprintf("%d pods run on as many nodes of Karpenter's", p.opts.nodes), Do: p.fill},
		{What: "Slipway is installed and waits", Do: p.install},
		{What: "Slipway has taken over", Do: p.takeover},
		{What: "Slipway bought for new pods, and drift was judged", Do: func(ctx context.Context) error { return p.grow(ctx, "forth", 2) }},
		{What: "what was there was compared", Do: func(ctx context.Context) error { return p.compare(ctx, &p.forth) }},
		{What: "Karpenter has the cluster back", Do: p.handback},
		{What: "Karpenter bought for new pods, and drift was judged", Do: func(ctx context.Context) error { return p.grow(ctx, "back", 4) }},
		{What: "what was there was compared again", Do: func(ctx context.Context) error { return p.compare(ctx, &p.back) }},
	}
	if err := peer.Play(ctx, stepLimit, steps, func(step peer.Step) { p.say(step.What) }); err != nil {
		return fmt.Errorf("%w%s", err, p.lastWords())
	}
	fmt.Printf("figure takeover %.3f s\nfigure takeover-drifted %d count\nfigure takeover-interrupted %d count\n", p.forth.took.Seconds(), p.forth.drifted, p.forth.interrupted)
	fmt.Printf("figure handback %.3f s\nfigure handback-drifted %d count\nfigure handback-interrupted %d count\n", p.back.took.Seconds(), p.back.drifted, p.back.interrupted)
	if p.forth.drifted+p.forth.interrupted+p.back.drifted+p.back.interrupted > 0 {
		return errors.New("the move disturbed the cluster")
	}
	return nil
}
