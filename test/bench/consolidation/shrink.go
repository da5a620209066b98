// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/test/bench/consolidation/model"
)

// shrinkEvery is the cluster's time between two decisions.
const shrinkEvery = 10 * time.Second

// shrink lets three quarters of the pods of 1,000 nodes go at once, under a budget of 100 % and under one of 10 %.
func (r *report) shrink(context.Context) error {
	for _, tenth := range []bool{false, true} {
		if err := r.shrinkUnder(tenth); err != nil {
			return err
		}
	}
	return nil
}

func (r *report) shrinkUnder(tenth bool) error {
	name, budget := "shrink-1000", ""
	if tenth {
		name, budget = "shrink-1000-tenth", "10%"
	}
	c, _, err := r.cluster(spec{nodes: 1000, left: 0.25, budget: budget, sizes: sizes()})
	if err != nil {
		return err
	}
	least, err := lowest(c)
	if err != nil {
		return err
	}
	before, nodes, began := c.Price(), len(c.Machines), c.Now
	ideal := newIdeal(c, least)
	spent, reached, evictions := time.Duration(0), time.Duration(-1), 0
	paid, must := 0.0, 0.0
	err = rest(c, disruption.NewMemory(), shrinkEvery, func(_ disruption.Decision, took time.Duration, _ []*model.Machine, evicted int) {
		spent += took
		evictions += evicted
		if reached < 0 && c.Price() <= 1.03*least {
			reached = spent
			fmt.Printf("%s: within 3 %% of the bound %s after the pods went\n", name, c.Now.Sub(began))
		}
		if ideal.price > least {
			ideal.step()
			paid, must = paid+c.Price(), must+ideal.price
		}
	})
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d nodes at $%.2f became %d at $%.2f, bound $%.2f, %d pods moved, %.2f s of deciding\n",
		name, nodes, before, len(c.Machines), c.Price(), least, evictions, spent.Seconds())
	if tenth {
		fmt.Printf("%s: nobody can be at the bound before %s, %d decisions of at most a tenth of the nodes\n", name, time.Duration(ideal.steps)*shrinkEvery, ideal.steps)
		r.figure(name+"-cost", paid/must, "ratio")
		return nil
	}
	if reached >= 0 {
		r.figure(name, reached.Seconds(), "s")
	} else {
		fmt.Printf("%s: NOT within 3 %% of the bound\n", name)
	}
	r.figure(name+"-cost", c.Price()/least, "ratio")
	return nil
}

// ideal is the least that nodes can cost in each step while at most a tenth of them may go in one: as many as may, the dearest
// first, and nothing has to be bought for their pods before the bound is reached.
type ideal struct {
	prices       []float64 // from the dearest
	price, least float64
	steps        int
}

func newIdeal(c *model.Cluster, least float64) *ideal {
	i := &ideal{least: least, price: c.Price()}
	for _, m := range c.Machines {
		i.prices = append(i.prices, m.Offering.Price)
	}
	slices.SortFunc(i.prices, func(a, b float64) int { return cmp.Compare(b, a) })
	return i
}

func (i *ideal) step() {
	i.steps++
	may := (len(i.prices) + 9) / 10
	for _, p := range i.prices[:may] {
		i.price -= p
	}
	i.prices, i.price = i.prices[may:], max(i.price, i.least)
}
