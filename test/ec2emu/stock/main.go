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
	flag.StringVar(&o.peer.Karpenter, "karpenter", "bin/compare/karpenter", "the stock Karpenter controller")
	flag.StringVar(&o.peer.Scheduler, "scheduler", "bin/compare/kube-scheduler", "the stock kube-scheduler")
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
	tell := teller{began: time.Now()}
	b, err := bed.New(ctx, bed.Options{
		// Boots take two seconds or so, and EC2's two minutes of notice twelve.
		Emulator: ec2emu.Options{Seed: 1, Speed: 10, LaunchLatency: 0.1, Throttle: true},
		Cluster:  cluster.Options{Progress: tell.say},
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

// teller says what happens, with the seconds since the start.
type teller struct{ began time.Time }

func (t teller) say(line string) { fmt.Printf("%6.1f s  %s\n", time.Since(t.began).Seconds(), line) }

// play goes through a node's life and then reads what was logged.
func (s *session) play(ctx context.Context) error {
	if err := s.start(); err != nil {
		return err
	}
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"Karpenter is ready", s.karpenter.AwaitReady},
		{"the EC2NodeClass and its NodePool are ready", s.configure},
		{fmt.Sprintf("%d pods run on nodes that Karpenter bought, one of them reserved", s.opts.pods), s.provision},
		{"a reclaimed spot instance was replaced", s.interrupt},
		{"the rest of the pods run on fewer nodes", s.consolidate},
		{"all instances are terminated and all nodes gone", s.terminate},
	}
	for _, step := range steps {
		limited, cancel := context.WithTimeoutCause(ctx, stepLimit, fmt.Errorf("not within %v", stepLimit))
		err := step.do(limited)
		cancel()
		if err != nil {
			return errors.Join(err, s.verdict())
		}
		s.tell.say(step.what + ": " + s.census())
	}
	return s.verdict()
}
