// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command days lets Slipway's and Karpenter's planners and consolidations live through the same day: the same pods come and go at the
// same moments, over the same types and prices, under the same pool (WhenEmptyOrUnderutilized, consolidateAfter 0s, a budget of
// 10 %, on demand, c, m and r types of x86 from the seventh generation on without local disks, 2 to 16 vCPU). Everything else is as
// installed, Slipway's ten minutes of grace for new nodes included.
//
// The day is a simulation with a clock of its own, in one process a side. Slipway's side are plan.Solve and disruption.Decide in the
// cluster of test/bench/consolidation/model, Karpenter's its scheduler and its consolidation methods in the program built from
// test/compare/days. The same on both sides: kube-scheduler's part (what fits nowhere is planned), EC2's part (the cheapest offering asked for is had, on demand), nodes that are replaced
// cost until their replacements have booted, and pods that are moved land where they were planned.
//
// Which node a pod goes to that fits on several is each side's own: slipway-scheduler is installed with MostAllocated, kube-scheduler
// has LeastAllocated, and on EKS nobody can change it. -scoring and -peer-scoring do here.
//
// What a day here does not have: the time that deciding, launching, draining and binding take (compare-latency and
// compare-consolidation have it, and it is Slipway's advantage), daemonsets, PodDisruptionBudgets, topology rules, spot,
// stock-outs. Karpenter begins a command at most every 15 seconds, as its loop does; Slipway decides once where Karpenter may begin eight.
//
// Pods are drawn, with a seed: two fifths of the work are services whose replicas follow the hour (half as many at night as on
// average, half as many again by day) and that are rolled out twice a day; three fifths are jobs that come as a Poisson process whose
// rate follows the hour and last log-normal times (median 10 minutes, mean 21, at most 12 hours). That is the shape that the
// published traces of clusters have (most jobs short, most of the work in the long ones, a daily rhythm); no trace is replayed.
//
// Figures, Slipway over Karpenter, so that below 1 is better:
//
//	compare-day-cost        dollars of the day
//	compare-day-evictions   pods moved by consolidation
//	compare-day-late        pods that waited for a node
//	compare-day-bought      nodes bought
//
// By default pods ask for 100 cores on average, some 40 nodes. Karpenter's side takes minutes of a core for that, and the square of
// it for more: each of its passes simulates up to every node's removal against all other nodes. -cores 250 is about 100 nodes.
//
// With -docs the table is written into docs/benchmarks.md. Run it through `make compare-cost`. Import level 6 (test).
package main
