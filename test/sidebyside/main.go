// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/test/peer"
)

// options are the command's flags.
type options struct {
	peer       peer.Options
	binaries   string
	parts      string
	contenders string
	docs, logs string
	short      bool

	sizes sizes
}

// sizes are how much of each is measured.
type sizes struct {
	singles, idles, nodes int
	// boot multiplies EC2's boot times in bursts and consolidation; elsewhere machines boot at once.
	boot float64
	// calm is how long nothing may change for a cluster to be at rest.
	calm time.Duration
}

func main() {
	log.SetLogger(logr.Discard())
	o := options{}
	o.peer.Flags(flag.CommandLine)
	flag.StringVar(&o.binaries, "binaries", "bin", "folder of Slipway's binaries")
	flag.StringVar(&o.parts, "parts", "single,burst-100,burst-1000,idle,shortage", "what to measure, of these and consolidation")
	flag.StringVar(&o.contenders, "contenders", "slipway,karpenter,karpenter-tuned", "who takes part")
	flag.StringVar(&o.docs, "docs", "", "file whose sections are replaced by what was measured")
	flag.StringVar(&o.logs, "logs", "", "folder to copy logs and events to, each part over those before")
	flag.BoolVar(&o.short, "short", false, "try it: a few pods, boots in a tenth of the time; documents stay as they are")
	flag.IntVar(&o.sizes.singles, "singles", 20, "single pods to measure")
	flag.IntVar(&o.sizes.idles, "idles", 1, "single pods after a minute of idleness each")
	flag.IntVar(&o.sizes.nodes, "nodes", 60, "nodes of the half-empty cluster")
	flag.Float64Var(&o.sizes.boot, "boot", 1, "boot times of machines in bursts and consolidation, over EC2's")
	flag.DurationVar(&o.sizes.calm, "calm", time.Minute, "how long nothing may change for a cluster to be at rest")
	flag.Parse()
	if o.short {
		o.sizes = sizes{singles: 4, idles: 1, nodes: 12, boot: 0.1, calm: 40 * time.Second}
	}
	if err := command(o); err != nil {
		fmt.Fprintln(os.Stderr, "sidebyside:", err)
		os.Exit(1)
	}
}

func command(o options) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := o.peer.Resolve(); err != nil {
		return err
	}
	r := &run{opts: o, began: time.Now(), offPlan: map[string]float64{}}
	for name := range strings.SplitSeq(o.contenders, ",") {
		all := contenders()
		i := slices.IndexFunc(all, func(c contender) bool { return c.name == name })
		if i < 0 {
			return fmt.Errorf("-contenders %q: there is no such contender", name)
		}
		r.contenders = append(r.contenders, all[i])
	}
	known := r.known()
	for name := range strings.SplitSeq(o.parts, ",") {
		part, ok := known[name]
		if !ok {
			return fmt.Errorf("-parts %q: there is no such part", name)
		}
		if err := r.measure(ctx, name, part); err != nil {
			return fmt.Errorf("part %s: %w", name, err)
		}
	}
	return r.finish()
}
