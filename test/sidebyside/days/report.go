// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/slipway-sh/slipway/test/peer"
	"github.com/slipway-sh/slipway/test/sidebyside/document"
)

func tell(who string, a answer) {
	fmt.Printf("%-10s $%.2f, %.1f nodes on average, %d bought, %d removed by consolidation, %d pods moved by it, %d pods waited for a node; %.0f s of this machine\n",
		who, a.Dollars, a.Nodes, a.Bought, a.Removed, a.Evictions, a.Late, a.Seconds)
}

// report writes the document and prints the figures.
func report(o options, d *day, ours, theirs answer) error {
	t := document.Table{Head: []string{"", "$", "nodes, mean", "bought", "removed by consolidation", "pods moved by it", "pods that waited for a node"}}
	for _, side := range []struct {
		title string
		answer
	}{{"Slipway", ours}, {"Karpenter", theirs}} {
		t.Row(side.title, fmt.Sprintf("%.2f", side.Dollars), fmt.Sprintf("%.1f", side.Nodes), fmt.Sprint(side.Bought), fmt.Sprint(side.Removed), fmt.Sprint(side.Evictions), fmt.Sprint(side.Late))
	}
	if o.docs != "" {
		karpenter, err := peer.Version(o.scheduler)
		if err != nil {
			return err
		}
		if o.scoring != mostAllocated || o.peerScoring != leastAllocated || o.minNodeAge != "" {
			return fmt.Errorf("-docs: the document has the defaults; leave -scoring, -peer-scoring and -min-node-age out")
		}
		text := fmt.Sprintf("## A day\n\n%d pods come and go within %d hours (%d cores on average; nodes are looked at every %d s, and Karpenter begins a command every 15 s), in process and with a clock of its own: both sides' planners and consolidations, over the same types and prices, "+
			"with the same pool (budget %s, `consolidateAfter: 0s`). Each side's scheduler is as it is installed: slipway-scheduler prefers the fullest node that fits, kube-scheduler the emptiest. Services follow the hour and are rolled out twice; jobs come at random and last log-normal times. "+
			"What is left out (`test/sidebyside/days` has the list): the time that deciding and booting take before a pod runs, daemonsets, PodDisruptionBudgets, topology rules, spot.\n\n",
			len(d.arrivals), o.hours, o.cores, o.every, budget) + t.String() +
			fmt.Sprintf("\nThe day costs %.3f of Karpenter's.\n\n", ours.Dollars/theirs.Dollars)
		if err := document.Write(o.docs, "day", text+document.Where("Karpenter "+karpenter)); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name         string
		ours, theirs float64
	}{
		{"compare-day-late", float64(ours.Late), float64(theirs.Late)},
		{"compare-day-bought", float64(ours.Bought), float64(theirs.Bought)},
		{"compare-day-evictions", float64(ours.Evictions), float64(theirs.Evictions)},
		{"compare-day-cost", ours.Dollars, theirs.Dollars},
	} {
		if f.theirs > 0 {
			fmt.Printf("figure %s %.3f ratio\n", f.name, f.ours/f.theirs)
		} else {
			fmt.Printf("%s has no ratio: Slipway %.0f, Karpenter 0\n", f.name, f.ours)
		}
	}
	return nil
}
