// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mix makes the clusters and pods that the planner is measured on. All
// draws come from a seed, so a mix is the same on every machine.
//
// Catalogues: [EC2] is everything sold in one region, through the product's own
// catalogue code over the emulator's recorded types and prices; [Peer] is
// the 400 made-up types of Karpenter's scheduling benchmark.
//
// Mixes without topology rules ([Names]):
//
//	synthetic  pods drawn one by one: 100m to 4 cores, 0.5 to 16 GiB a core
//	big        4 to 32 cores, 1 to 8 GiB a core: few pods a node
//	memory     8 to 32 GiB a core
//	cpu        0.25 to 2 GiB a core
//	openb      the CPU-only pods of Alibaba's GPU cluster trace of 2023
//	openb-gpu  all pods of that trace, a share of a GPU counted as a whole one
//	real       60 workloads of very different size over five pools, spot and on-demand
//
// The first five are packed into one pool of on-demand c, m and r types of x86,
// as simple as possible, with an optional cap on vCPU a node; real and openb-gpu
// use five pools with spot, arm64, a tainted batch pool and GPUs.
//
// The shapes of real are a third each from three sources. (1) The CPU-only pods
// of the Alibaba trace "openb" (cluster-trace-gpu-v2023; Weng et al., USENIX ATC
// 2023), its twelve most frequent sizes by frequency. (2) Virtual machine sizes as
// Azure reports them (Cortez et al., Resource Central, SOSP 2017: about four in five
// machines have one or two cores, and most have 1.75 or 3.5 GB a core). (3) Small
// services as in (synthetic). How many pods a workload has falls off harmonically
// (Zipf), as the sizes of jobs do in the published cluster traces.
//
// [Topology] puts rules on the workloads of real.
//
// Import level 6 (test).
package mix
