// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/bench/plan/mix"
)

// measure plans the input several times and returns the median time.
func measure(in plan.Input, runs int) (time.Duration, plan.Result) {
	var times []time.Duration
	var r plan.Result
	for range runs {
		runtime.GC()
		start := time.Now()
		r = plan.Solve(in)
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	return times[len(times)/2], r
}

// runsFor is how often a plan of n pods is timed: small ones more often.
func runsFor(n int) int {
	switch {
	case n <= 100:
		return 101
	case n <= 1000:
		return 21
	default:
		return 5
	}
}

func price(r plan.Result) float64 {
	sum := 0.0
	for i := range r.Launches {
		sum += r.Launches[i].Price()
	}
	return sum
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// manyPods is how many pods make a workload count for concentration.
const manyPods = 100

// concentration is the largest share of one workload's pods on one node, over the workloads with many pods.
func concentration(in plan.Input, r plan.Result) float64 {
	total := map[*capacity.Class]int{}
	for _, p := range in.Pods {
		total[p.Class]++
	}
	worst := 0.0
	for i := range r.Launches {
		here := map[*capacity.Class]int{}
		for _, p := range r.Launches[i].Pods {
			here[p.Class]++
		}
		for c, n := range here {
			if total[c] >= manyPods {
				worst = max(worst, float64(n)/float64(total[c]))
			}
		}
	}
	return worst
}

// child plans pods of the peer's mix once and prints what memory the process has had at most.
func child(o options) error {
	in := mix.PeerPods(mix.Peer(), o.child, o.seed)
	r := plan.Solve(in)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			fmt.Println(strings.TrimSuffix(strings.TrimSpace(kb), " kB"), len(r.Launches))
			return nil
		}
	}
	return errors.New("the kernel does not report VmHWM")
}

// peakMemory runs this command anew for one plan and returns its peak resident memory in MB (10^6 bytes).
func (r *report) peakMemory(pods int) (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	var out bytes.Buffer
	cmd := exec.Command(self, "-child", strconv.Itoa(pods), "-seed", strconv.FormatUint(r.seed, 10))
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("running a plan in a process of its own: %w", err)
	}
	var kb, nodes int
	if _, err := fmt.Sscan(out.String(), &kb, &nodes); err != nil {
		return 0, fmt.Errorf("reading what the process printed, %q: %w", out.String(), err)
	}
	return float64(kb) * 1024 / 1e6, nil
}
