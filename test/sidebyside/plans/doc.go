// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command plans has Slipway's planner and Karpenter's own scheduler plan the same pods over the same types and prices, each
// in a process of its own, without a cluster.
//
// The inputs are the mixes of test/bench/plan/mix: that of Karpenter's scheduling benchmark (made-up types), and pods of real
// sizes over everything EC2 sells, with and without a limit to the size of nodes. They are written as manifests and a list of types, which Karpenter's side, a program built
// in test/compare, reads. Times are those of plan.Solve and Scheduler.Solve alone, medians where they are short; prices
// are what the cheapest offering of each node costs; memory is the process's peak, which holds the input too.
//
// Figures:
//
//	compare-plan-N       Karpenter's time over Slipway's, N pods of Karpenter's benchmark
//	compare-plan-memory  Karpenter's peak memory over Slipway's, the largest of them
//	compare-plan-cost    Slipway's price over Karpenter's, the worst of the mixes (below 1 is cheaper)
//
// With -docs the table is written into docs/benchmarks.md. Run it through `make compare-plan`. Import level 6 (test).
package main
