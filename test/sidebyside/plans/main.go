// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/bench/plan/mix"
	"github.com/slipway-sh/slipway/test/sidebyside/document"
	"github.com/slipway-sh/slipway/test/sidebyside/input"
)

type options struct {
	peer, sizes, mixes, docs, scheduler string
	pods                                int
	seed                                uint64
	// child is a mix that this process plans, n pods of it, to print an answer.
	child string
	n     int
	maker *mix.Maker
}

func main() {
	log.SetLogger(logr.Discard())
	o := options{}
	flag.StringVar(&o.peer, "karpenter", "bin/compare/planner", "the program built from test/compare/planner")
	flag.StringVar(&o.scheduler, "scheduler", "bin/compare/karpenter", "the stock Karpenter controller, for its version")
	flag.StringVar(&o.sizes, "sizes", "100,1000,10000", "pods of Karpenter's benchmark to plan")
	flag.StringVar(&o.mixes, "mixes", "synthetic,synthetic@32,synthetic@16,memory,memory@32,cpu,cpu@32,big,big@32,real,real@32,real@16,topology/all-rules", "mixes to compare prices on; @32 is with nodes of at most 32 vCPU")
	flag.IntVar(&o.pods, "pods", 1000, "pods of each of these mixes")
	flag.Uint64Var(&o.seed, "seed", 1, "of all draws")
	flag.StringVar(&o.docs, "docs", "", "file whose section is replaced by what was measured")
	flag.StringVar(&o.child, "child", "", "plan this mix once and print the answer; used by the command itself")
	flag.IntVar(&o.n, "n", 0, "pods of it")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "compare-plan:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	o.maker = &mix.Maker{Seed: o.seed}
	if o.child != "" {
		return o.plan(ctx)
	}
	c := &comparison{options: o}
	for text := range strings.SplitSeq(o.sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("-sizes %q: %w", o.sizes, err)
		}
		if err := c.pair(ctx, peerMix, n); err != nil {
			return err
		}
	}
	for name := range strings.SplitSeq(o.mixes, ",") {
		if err := c.pair(ctx, name, o.pods); err != nil {
			return err
		}
	}
	return c.finish()
}

// peerMix is the name of the mix of Karpenter's benchmark.
const peerMix = "benchmark"

// input makes a mix.
func (o *options) input(ctx context.Context, name string, n int) (plan.Input, error) {
	if name == peerMix {
		return mix.PeerPods(mix.Peer(), n, o.seed), nil
	}
	if o.maker.Catalog == nil {
		var err error
		if o.maker.Catalog, err = mix.EC2(ctx); err != nil {
			return plan.Input{}, err
		}
	}
	if rules, ok := strings.CutPrefix(name, "topology/"); ok {
		return o.maker.Topology(rules, n)
	}
	name, limit, capped := strings.Cut(name, "@")
	cores := 0
	if capped {
		var err error
		if cores, err = strconv.Atoi(limit); err != nil {
			return plan.Input{}, fmt.Errorf("nodes of at most %q vCPU: %w", limit, err)
		}
	}
	return o.maker.Make(name, n, cores)
}

// answer is what either side prints: see test/compare/planner.
type answer struct {
	Milliseconds float64 `json:"milliseconds"`
	Nodes        int     `json:"nodes"`
	Price        float64 `json:"price"`
	Unplaced     int     `json:"unplaced"`
	RSSKilobytes int     `json:"rssKilobytes"`
}

// plan plans a mix and prints the answer.
func (o *options) plan(ctx context.Context) error {
	in, err := o.input(ctx, o.child, o.n)
	if err != nil {
		return err
	}
	var times []time.Duration
	var r plan.Result
	for range runsFor(o.n) {
		runtime.GC()
		start := time.Now()
		r = plan.Solve(in)
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	a := answer{Milliseconds: float64(times[len(times)/2]) / float64(time.Millisecond), Nodes: len(r.Launches), Unplaced: len(r.Unplaced)}
	for i := range r.Launches {
		a.Price += r.Launches[i].Price()
	}
	if a.RSSKilobytes, err = peakMemory(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(a)
}

// runsFor is how often a plan of n pods is timed, on either side.
func runsFor(n int) int {
	if n <= 100 {
		return 5
	}
	return 1
}

func peakMemory() (int, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("reading the peak memory: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), " kB")))
		}
	}
	return 0, errors.New("reading the peak memory: the kernel does not report VmHWM")
}

// comparison collects pairs of answers.
type comparison struct {
	options

	table   document.Table
	figures []string
	worst   float64 // price over Karpenter's
	memory  float64
	where   string
}

// pair has both plan a mix, one after the other.
func (c *comparison) pair(ctx context.Context, name string, n int) error {
	in, err := c.input(ctx, name, n)
	if err != nil {
		return fmt.Errorf("mix %s of %d pods: %w", name, n, err)
	}
	folder, err := os.MkdirTemp("", "slipway-plans-")
	if err != nil {
		return fmt.Errorf("making a folder for the input: %w", err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "input.json")
	f, err := input.Of(in)
	if err != nil {
		return fmt.Errorf("mix %s: %w", name, err)
	}
	if err := input.Save(path, f); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this command: %w", err)
	}
	ours, err := ask(ctx, self, "-child", name, "-n", strconv.Itoa(n), "-seed", strconv.FormatUint(c.seed, 10))
	if err != nil {
		return fmt.Errorf("mix %s of %d pods: Slipway: %w", name, n, err)
	}
	theirs, err := ask(ctx, c.peer, "-input", path, "-runs", strconv.Itoa(runsFor(n)))
	if err != nil {
		return fmt.Errorf("mix %s of %d pods: Karpenter: %w", name, n, err)
	}
	c.note(name, n, ours, theirs)
	return nil
}

// ask runs a side and reads its answer.
func ask(ctx context.Context, path string, args ...string) (answer, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return answer{}, err
	}
	var a answer
	return a, json.Unmarshal(out, &a)
}
