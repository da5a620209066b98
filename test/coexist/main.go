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
const stepLimit = 3 * time.Minute

type options struct {
	peer     peer.Options
	binaries string
	pods     int
}

func main() {
	log.SetLogger(logr.Discard())
	o := options{}
	o.peer.Flags(flag.CommandLine)
	flag.StringVar(&o.binaries, "binaries", "bin", "folder of Slipway's binaries")
	flag.IntVar(&o.pods, "pods", 10, "pods of Slipway's that wait")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "compare-coexistence:", err)
		os.Exit(1)
	}
}

func run(o options) (err error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := o.peer.Resolve(); err != nil {
		return err
	}
	say := peer.NewTeller().Say
	b, err := bed.New(ctx, bed.Options{
		Binaries: o.binaries, SchedulerArgs: []string{"--disable-disruption"},
		Emulator: ec2emu.Options{Seed: 1, InstantBoot: true, ClusterAliases: []string{karpentersName}}, Cluster: cluster.Options{Progress: say},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	kube, err := client.New(b.Cluster.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	p := &proof{bed: b, kube: kube, opts: o, say: say}
	return p.play(ctx)
}

// play goes through the steps of the package's description.
func (p *proof) play(ctx context.Context) error {
	steps := []peer.Step{
		{What: "Karpenter is at work", Do: p.start},
		{What: "Karpenter bought for a pod of default-scheduler, and gave the node back", Do: p.able},
		{What: "Karpenter planned while pods of Slipway's waited for EC2's answer", Do: p.whileNameless},
		{What: "Karpenter planned while their machines booted", Do: p.whileBooting},
		{What: "Karpenter has ended, slipway-controller took its lease, and the pods run", Do: p.handOver},
		{What: "Slipway bought for a pod of its own beside one of default-scheduler", Do: p.unasked},
	}
	if err := peer.Play(ctx, stepLimit, steps, func(step peer.Step) { p.say(step.What) }); err != nil {
		return fmt.Errorf("%w%s", err, p.lastWords())
	}
	fmt.Printf("figure launches-beside %d count\nfigure served-unasked %d count\n", p.beside, p.served)
	if p.beside+p.served > 0 {
		return errors.New("nodes were bought for pods of others")
	}
	return nil
}
