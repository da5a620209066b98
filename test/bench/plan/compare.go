// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/bench/plan/bound"
	"github.com/slipway-sh/slipway/test/bench/plan/greedy"
)

// comparison is one plan beside the bound, what can be had, and the baselines.
type comparison struct {
	name  string
	cores int // cap on vCPU a node, 0 for none
	pods  int
	// in and result are let go of when everything has been taken from them.
	in     plan.Input
	result plan.Result

	took      time.Duration
	price     float64
	nodes     int
	densest   float64        // see concentration
	bought    map[string]int // by pool, type and capacity type
	spent     map[string]float64
	bound     bound.Result
	whole     float64 // price of the bound's program in whole nodes
	karpenter greedy.Plan
	largest   greedy.Plan

	// after is the same mix with fewer pods, whose bound is computed first and gone on from.
	after *comparison
	done  chan struct{}
	err   error
}

// solve plans the input and measures it.
func (c *comparison) solve(runs int) {
	c.pods = len(c.in.Pods)
	c.took, c.result = measure(c.in, runs)
	c.price, c.nodes, c.densest = price(c.result), len(c.result.Launches), concentration(c.in, c.result)
	c.bought, c.spent = map[string]int{}, map[string]float64{}
	for i := range c.result.Launches {
		l := &c.result.Launches[i]
		key := l.Pool.Name + "/" + l.Offerings[0].Type.Name + "/" + l.Offerings[0].CapacityType
		c.bought[key]++
		c.spent[key] += l.Price()
	}
}

func (c *comparison) ratio() float64 { return c.price / c.bound.Value }

// label names the mix with its size and cap.
func (c *comparison) label() string {
	s := fmt.Sprintf("%s-%d", c.name, c.pods)
	if c.cores > 0 {
		s += fmt.Sprintf("-%dvcpu", c.cores)
	}
	return s
}

// boundTime is how long one bound may take; what is reached by then is valid, only not the best.
const boundTime = 8 * time.Second

// compare computes bounds and baselines, as many at a time as there are processors.
func compare(all []*comparison) error {
	next := make(chan *comparison)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for c := range next {
				c.err = c.compute()
				close(c.done)
			}
		})
	}
	for _, c := range all {
		c.done = make(chan struct{})
	}
	for _, c := range all { // what another waits for comes before it
		next <- c
	}
	close(next)
	wg.Wait()
	for _, c := range all {
		if c.err != nil {
			return fmt.Errorf("mix %s: %w", c.label(), c.err)
		}
	}
	return nil
}

func (c *comparison) compute() error {
	if n := len(c.result.Unplaced); n > 0 {
		u := c.result.Unplaced[0]
		return fmt.Errorf("%d pods are not placed, for instance %s: %s %s", n, u.Pod.Name, u.Reason, u.Detail)
	}
	problem, err := bound.Of(c.in)
	if err != nil {
		return err
	}
	c.in, c.result = plan.Input{}, plan.Result{}
	o := bound.Options{Time: boundTime}
	if c.after != nil {
		<-c.after.done
		o.After = &c.after.bound
	}
	if c.bound, err = bound.Solve(problem, o); err != nil {
		return err
	}
	if c.price < c.bound.Value*(1-1e-9) {
		return fmt.Errorf("the plan costs %.6f $/h and the bound says %.6f: one of them is wrong", c.price, c.bound.Value)
	}
	c.whole, c.karpenter, c.largest = bound.Round(problem, c.bound), greedy.Karpenter(problem), greedy.Largest(problem)
	return nil
}

// summarize prints the table of all comparisons and the figures name-mean and name-worst.
func (r *report) summarize(name string, all []*comparison) {
	printTable(all)
	sum, worst := 0.0, all[0]
	for _, c := range all {
		sum += c.ratio()
		if c.ratio() > worst.ratio() {
			worst = c
		}
	}
	fmt.Printf("  over bound: the plan's price; can be had: the bound's program rounded up to whole nodes, without the rules it leaves out\n")
	fmt.Printf("  worst: %s\n", worst.label())
	r.figure(name+"-mean", sum/float64(len(all)), "ratio")
	r.figure(name+"-worst", worst.ratio(), "ratio")
	slices.SortStableFunc(all, func(a, b *comparison) int { return cmp.Compare(b.ratio(), a.ratio()) })
	for _, c := range all[:min(r.explain, len(all))] {
		c.explain()
	}
}

func printTable(all []*comparison) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...string) { fmt.Fprintln(w, "  "+strings.Join(cells, "\t")+"\t") }
	row("mix", "ms", "nodes", "one node", "$/h", "bound", "over bound", "can be had", "Karpenter-like", "nodes", "largest fits", "nodes")
	percent := func(x, bound float64) string { return fmt.Sprintf("%+.2f%%", 100*(x/bound-1)) }
	for _, c := range all {
		b := c.bound.Value
		row(c.label(), fmt.Sprintf("%.1f", ms(c.took)), fmt.Sprint(c.nodes), fmt.Sprintf("%.2f", c.densest), fmt.Sprintf("%.2f", c.price),
			fmt.Sprintf("%.2f", b), percent(c.price, b), percent(c.whole, b),
			percent(c.karpenter.Price, b), fmt.Sprint(c.karpenter.Nodes), percent(c.largest.Price, b), fmt.Sprint(c.largest.Nodes))
	}
	if err := w.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// explain prints, by type, what the plan buys and what the bound's program would buy.
func (c *comparison) explain() {
	fmt.Printf("%s: plan %.2f $/h, bound %.2f, %+.2f%%\n", c.label(), c.price, c.bound.Value, 100*(c.ratio()-1))
	bought := map[string]float64{}
	for key, n := range c.bought {
		bought[key] = float64(n)
	}
	fmt.Println("  the plan buys")
	printSpent(bought, c.spent)
	bought, spent := map[string]float64{}, map[string]float64{}
	for _, b := range c.bound.Buys {
		bought[b.Shape.Name] += b.Times
		spent[b.Shape.Name] += b.Times * b.Shape.Price
	}
	fmt.Println("  the program would buy")
	printSpent(bought, spent)
}

func printSpent(bought, spent map[string]float64) {
	keys := slices.SortedFunc(maps.Keys(spent), func(a, b string) int { return cmp.Or(cmp.Compare(spent[b], spent[a]), strings.Compare(a, b)) })
	for _, k := range keys[:min(len(keys), 12)] {
		fmt.Printf("    %9.2f $/h  %8.2f × %s\n", spent[k], bought[k], k)
	}
}
