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
	began := time.Now()
	say := func(line string) { fmt.Printf("%6.1f s  %s\n", time.Since(began).Seconds(), line) }
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
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"Karpenter is at work", p.start},
		{fmt.Sprintf("%d pods run on as many nodes of Karpenter's", p.opts.nodes), p.fill},
		{"Slipway is installed and waits", p.install},
		{"Slipway has taken over", p.takeover},
		{"Slipway bought for new pods, and drift was judged", func(ctx context.Context) error { return p.grow(ctx, "forth", 2) }},
		{"what was there was compared", func(ctx context.Context) error { return p.compare(ctx, &p.forth) }},
		{"Karpenter has the cluster back", p.handback},
		{"Karpenter bought for new pods, and drift was judged", func(ctx context.Context) error { return p.grow(ctx, "back", 4) }},
		{"what was there was compared again", func(ctx context.Context) error { return p.compare(ctx, &p.back) }},
	}
	for _, step := range steps {
		limited, cancel := context.WithTimeoutCause(ctx, stepLimit, fmt.Errorf("not within %v", stepLimit))
		err := step.do(limited)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w%s", step.what, err, p.lastWords())
		}
		p.say(step.what)
	}
	fmt.Printf("figure takeover %.3f s\nfigure takeover-drifted %d count\nfigure takeover-interrupted %d count\n", p.forth.took.Seconds(), p.forth.drifted, p.forth.interrupted)
	fmt.Printf("figure handback %.3f s\nfigure handback-drifted %d count\nfigure handback-interrupted %d count\n", p.back.took.Seconds(), p.back.drifted, p.back.interrupted)
	if p.forth.drifted+p.forth.interrupted+p.back.drifted+p.back.interrupted > 0 {
		return errors.New("the move disturbed the cluster")
	}
	return nil
}
