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

// comparison is one plan beside the bound and the baselines.
type comparison struct {
	name   string
	cores  int // cap on vCPU a node, 0 for none
	in     plan.Input
	took   time.Duration
	result plan.Result

	// after is the same mix with fewer pods, whose bound is computed first and gone on from.
	after     *comparison
	done      chan struct{}
	problem   bound.Problem
	bound     bound.Result
	boundTook time.Duration
	karpenter greedy.Plan
	largest   greedy.Plan
	err       error
}

func (c *comparison) ratio() float64 { return price(c.result) / c.bound.Value }

// label names the mix with its size and cap.
func (c *comparison) label() string {
	s := fmt.Sprintf("%s-%d", c.name, len(c.in.Pods))
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
	start := time.Now()
	var err error
	if c.problem, err = bound.Of(c.in); err != nil {
		return err
	}
	o := bound.Options{Time: boundTime}
	if c.after != nil {
		<-c.after.done
		o.After = &c.after.bound
	}
	if c.bound, err = bound.Solve(c.problem, o); err != nil {
		return err
	}
	c.boundTook = time.Since(start)
	if price(c.result) < c.bound.Value*(1-1e-9) {
		return fmt.Errorf("the plan costs %.6f $/h and the bound says %.6f: one of them is wrong", price(c.result), c.bound.Value)
	}
	c.karpenter, c.largest = greedy.Karpenter(c.problem), greedy.Largest(c.problem)
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
	row("mix", "ms", "nodes", "$/h", "bound", "known to", "over bound", "Karpenter-like", "nodes", "largest fits", "nodes", "one node")
	percent := func(x float64) string { return fmt.Sprintf("%+.2f%%", 100*(x-1)) }
	for _, c := range all {
		b := c.bound.Value
		row(c.label(), fmt.Sprintf("%.1f", ms(c.took)), fmt.Sprint(len(c.result.Launches)), fmt.Sprintf("%.2f", price(c.result)),
			fmt.Sprintf("%.2f", b), percent(min(c.bound.Master, price(c.result))/b), percent(c.ratio()),
			percent(c.karpenter.Price/b), fmt.Sprint(c.karpenter.Nodes), percent(c.largest.Price/b), fmt.Sprint(c.largest.Nodes),
			fmt.Sprintf("%.2f", concentration(c.in, c.result)))
	}
	if err := w.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// explain prints, by type, what the plan buys and what the bound's program would buy.
func (c *comparison) explain() {
	fmt.Printf("%s: plan %.2f $/h, bound %.2f (at most %.2f), %+.2f%%\n", c.label(), price(c.result), c.bound.Value, c.bound.Master, 100*(c.ratio()-1))
	bought, spent := map[string]float64{}, map[string]float64{}
	for i := range c.result.Launches {
		l := &c.result.Launches[i]
		key := l.Pool.Name + "/" + l.Offerings[0].Type.Name + "/" + l.Offerings[0].CapacityType
		bought[key]++
		spent[key] += l.Price()
	}
	fmt.Println("  the plan buys")
	printSpent(bought, spent)
	bought, spent = map[string]float64{}, map[string]float64{}
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
