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

	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/cluster"
	"github.com/slipway-sh/slipway/test/ec2emu"
	"github.com/slipway-sh/slipway/test/peer"
)

// stepLimit bounds each step: machines boot in seconds here, Karpenter's slowest
// own period on the way is a minute.
const stepLimit = 3 * time.Minute

func main() {
	o := options{}
	o.peer.Flags(flag.CommandLine)
	flag.StringVar(&o.logs, "logs", "", "folder to copy Karpenter's log and the emulator's journal to")
	flag.IntVar(&o.pods, "pods", 50, "replicas of the Deployment")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "compare-emulator:", err)
		os.Exit(1)
	}
}

type options struct {
	peer peer.Options
	logs string
	pods int
}

func run(o options) (err error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := o.peer.Resolve(); err != nil {
		return err
	}
	tell := peer.NewTeller()
	b, err := bed.New(ctx, bed.Options{
		// Boots take two seconds or so, and EC2's two minutes of notice twelve.
		Emulator: ec2emu.Options{Seed: 1, Speed: 10, LaunchLatency: 0.1, Throttle: true},
		Cluster:  cluster.Options{Progress: tell.Say},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	// A reservation costs nothing more to use, so Karpenter has to begin with it.
	if _, err := b.Emulator.AddReservation(ec2emu.Reservation{
		InstanceType: "m5.4xlarge", Zone: "us-east-1b", Count: 1, Targeted: true, Tags: map[string]string{"karpenter.sh/discovery": "demo"},
	}); err != nil {
		return err
	}
	s := &session{bed: b, opts: o, tell: tell}
	err = s.play(ctx)
	if o.logs != "" {
		err = errors.Join(err, s.keep(o.logs))
	}
	return err
}

// play goes through a node's life and then reads what was logged.
func (s *session) play(ctx context.Context) error {
	if err := s.start(); err != nil {
		return err
	}
	steps := []peer.Step{
		{What: "Karpenter is ready", Do: s.karpenter.AwaitReady},
		{What: "the EC2NodeClass and its NodePool are ready", Do: s.configure},
		{What: fmt.Sprintf("%d pods run on nodes that Karpenter bought, one of them reserved", s.opts.pods), Do: s.provision},
		{What: "a reclaimed spot instance was replaced", Do: s.interrupt},
		{What: "the rest of the pods run on fewer nodes", Do: s.consolidate},
		{What: "all instances are terminated and all nodes gone", Do: s.terminate},
	}
	err := peer.Play(ctx, stepLimit, steps, func(step peer.Step) { s.tell.Say(step.What + ": " + s.census()) })
	return errors.Join(err, s.verdict())
}
