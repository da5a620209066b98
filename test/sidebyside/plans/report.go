// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/slipway-sh/slipway/test/peer"
	"github.com/slipway-sh/slipway/test/sidebyside/document"
)

// note takes a pair of answers. Prices are compared where both placed all pods.
func (c *comparison) note(name string, n int, ours, theirs answer) {
	c.table.Head = []string{"mix", "pods", "", "time", "nodes", "$/h", "not placed", "peak memory"}
	for _, side := range []struct {
		title string
		answer
	}{{"Slipway", ours}, {"Karpenter", theirs}} {
		c.table.Row(name, fmt.Sprint(n), side.title, fmt.Sprintf("%.1f ms", side.Milliseconds), fmt.Sprint(side.Nodes),
			fmt.Sprintf("%.2f", side.Price), fmt.Sprint(side.Unplaced), fmt.Sprintf("%d MB", side.RSSKilobytes/1000))
	}
	fmt.Printf("%-18s %6d pods: Slipway %9.1f ms, %5d nodes, %9.2f $/h, %d not placed; Karpenter %9.1f ms, %5d nodes, %9.2f $/h, %d not placed\n",
		name, n, ours.Milliseconds, ours.Nodes, ours.Price, ours.Unplaced, theirs.Milliseconds, theirs.Nodes, theirs.Price, theirs.Unplaced)
	if name == peerMix {
		c.figure(fmt.Sprintf("compare-plan-%d", n), theirs.Milliseconds/ours.Milliseconds, "ratio")
		c.memory = float64(theirs.RSSKilobytes) / float64(ours.RSSKilobytes)
	}
	if ours.Unplaced == 0 && theirs.Unplaced == 0 && theirs.Price > 0 {
		ratio := ours.Price / theirs.Price
		fmt.Printf("  price over Karpenter's: %.3f\n", ratio)
		if ratio > c.worst {
			c.worst, c.where = ratio, fmt.Sprintf("%s, %d pods", name, n)
		}
	} else {
		fmt.Println("  prices are not compared: a side left pods without a place")
	}
}

func (c *comparison) figure(name string, value float64, unit string) {
	c.figures = append(c.figures, fmt.Sprintf("figure %s %.3f %s", name, value, unit))
}

// finish writes the document and prints the figures.
func (c *comparison) finish() error {
	c.figure("compare-plan-memory", c.memory, "ratio")
	if c.worst > 0 {
		fmt.Printf("worst price over Karpenter's: %s\n", c.where)
		c.figure("compare-plan-cost", c.worst, "ratio")
	}
	if c.docs != "" {
		karpenter, err := peer.Version(c.scheduler)
		if err != nil {
			return err
		}
		text := "## Plans\n\nThe same pods over the same types and prices, in process: `benchmark` is the mix of Karpenter's own scheduling benchmark over its 400 made-up types, the other mixes are " +
			"pods over everything EC2 sells (`test/bench/plan/mix` says what is in them), `@32` with nodes of at most 32 vCPU. Time is that of the planner alone.\n\n" + c.table.String() +
			fmt.Sprintf("\nThe price is at most %.3f of Karpenter's (%s).\n\n", c.worst, c.where)
		if err := document.Write(c.docs, "plans", text+document.Where("Karpenter "+karpenter)); err != nil {
			return err
		}
	}
	for _, f := range c.figures {
		fmt.Println(f)
	}
	return nil
}
