// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/bench/consolidation/model"
)

// pass measures one decision with everything to be looked at.
func (r *report) pass(context.Context) error {
	for _, nodes := range []int{1000, 5000} {
		c, _, err := r.cluster(spec{nodes: nodes, pods: 20 * nodes, sizes: smallSizes()})
		if err != nil {
			return err
		}
		var times []time.Duration
		var d disruption.Decision
		for range 3 {
			s := c.Snapshot()
			began := time.Now()
			d = disruption.Decide(s, disruption.NewMemory())
			times = append(times, time.Since(began))
		}
		took := quantile(times, 0.5)
		going := 0
		for _, cmd := range d.Commands {
			going += len(cmd.Going)
		}
		cores, memory := use(c)
		fmt.Printf("pass: %d nodes, %d pods, which ask for %.0f %% of the cores and %.0f %% of the memory: %.3f s, %d commands for %d nodes\n",
			len(c.Machines), len(c.Pods()), 100*cores, 100*memory, took.Seconds(), len(d.Commands), going)
		r.figure(fmt.Sprintf("consolidation-pass-%d", nodes), took.Seconds(), "s")
	}
	mb, err := peak()
	if err != nil {
		return err
	}
	r.figure("consolidation-memory", mb, "MB")
	return nil
}

// peak is the peak resident memory of this process in MB.
func peak() (float64, error) {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(raw), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no VmHWM")
}

// incremental measures a decision after one pod has come or gone.
func (r *report) incremental(context.Context) error {
	c, w, err := r.cluster(spec{nodes: 1000, left: 1, sizes: smallSizes()})
	if err != nil {
		return err
	}
	m := disruption.NewMemory()
	ignore := func(disruption.Decision, time.Duration, []*model.Machine, int) {}
	if err := rest(c, m, 5*time.Minute, ignore); err != nil {
		return err
	}
	var times []time.Duration
	for i := range 300 {
		if i%2 == 0 {
			if err := c.Schedule(w.pods(1)); err != nil {
				return err
			}
		} else {
			pods := c.Pods()
			gone := pods[w.r.IntN(len(pods))]
			for _, machine := range c.Machines {
				for _, p := range machine.Pods {
					if p == gone {
						machine.Keep(func(q *capacity.Pod) bool { return q != gone })
						break
					}
				}
			}
		}
		c.Now = c.Now.Add(time.Second)
		s := c.Snapshot()
		began := time.Now()
		d := disruption.Decide(s, m)
		times = append(times, time.Since(began))
		if _, _, err := carry(c, d); err != nil {
			return err
		}
	}
	fmt.Printf("incremental: %d nodes, %d pods, median %.2f ms, p99 %.2f ms\n", len(c.Machines), len(c.Pods()), ms(quantile(times, 0.5)), ms(quantile(times, 0.99)))
	r.figure("consolidation-incremental", ms(quantile(times, 0.99)), "ms")
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// cost runs 300 nodes at 40 % use to rest.
func (r *report) cost(context.Context) error {
	c, _, err := r.cluster(spec{nodes: 300, left: 0.4, sizes: sizes()})
	if err != nil {
		return err
	}
	least, err := lowest(c)
	if err != nil {
		return err
	}
	before, nodes := c.Price(), len(c.Machines)
	made, twice, evictions := map[string]bool{}, 0, 0
	err = rest(c, disruption.NewMemory(), 10*time.Second, func(d disruption.Decision, _ time.Duration, bought []*model.Machine, evicted int) {
		evictions += evicted
		for _, cmd := range d.Commands {
			for _, n := range cmd.Nodes {
				if made[n] {
					twice++
				}
			}
		}
		for _, b := range bought {
			made[b.Claim.Name] = true
		}
	})
	if err != nil {
		return err
	}
	saved := before - c.Price()
	fmt.Printf("cost: %d nodes at $%.2f became %d at $%.2f, bound $%.2f, %d bought, %d pods moved\n", nodes, before, len(c.Machines), c.Price(), least, len(made), evictions)
	r.figure("consolidation-cost", c.Price()/least, "ratio")
	r.figure("consolidation-replaced-twice", float64(twice), "count")
	r.figure("consolidation-evictions-per-dollar", float64(evictions)/saved, "count")
	return nil
}

// churn replaces a tenth of the pods each minute.
func (r *report) churn(context.Context) error {
	c, w, err := r.cluster(spec{nodes: 100, left: 1, sizes: sizes()})
	if err != nil {
		return err
	}
	m := disruption.NewMemory()
	removed, moved, replaced := 0, 0, 0
	for range 30 {
		for _, machine := range c.Machines {
			machine.Keep(func(*capacity.Pod) bool { return w.r.Float64() >= 0.1 })
		}
		missing := 0
		for _, machine := range c.Machines {
			missing += len(machine.Pods)
		}
		if replaced == 0 {
			replaced = missing * 10 / 9
		}
		if err := c.Schedule(w.pods(replaced - missing)); err != nil {
			return err
		}
		for range 6 {
			c.Now = c.Now.Add(10 * time.Second)
			d := disruption.Decide(c.Snapshot(), m)
			for _, cmd := range d.Commands {
				for _, n := range cmd.Going {
					if age := c.Now.Sub(n.Claim.CreationTimestamp.Time); age < 10*time.Minute && len(n.Plan) > 0 {
						removed++
					}
				}
			}
			_, evicted, err := carry(c, d)
			if err != nil {
				return err
			}
			moved += evicted
		}
	}
	fmt.Printf("churn: %d nodes at $%.2f after half an hour, %d bought, %d pods moved by consolidation\n", len(c.Machines), c.Price(), c.Bought, moved)
	r.figure("churn-bought-and-removed", float64(removed), "count")
	return nil
}
