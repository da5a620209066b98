// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sidebyside runs Slipway and the stock Karpenter for AWS one after the other in one run: each on a control plane of its
// own that is started the same way, with an EC2 emulator of the same seed and the same boot times, and the same manifests.
// What differs is schedulerName: pods of Karpenter's side are scheduled by a stock kube-scheduler.
//
// Contenders are Slipway as installed, Karpenter as installed, and Karpenter with every setting turned that would help it
// here ("tuned": its batch closes after 10 ms without a new pod, it sizes its workers for 8 cores, and neither its own nor
// kube-scheduler's requests to the API server are limited).
//
// Parts, each on clusters of its own, and their figures. A ratio is the peer's figure over Slipway's, so above 1 is better for
// Slipway; those of the tuned peer have the suffix -tuned.
//
//	single         pods one at a time, each of which needs a node: created (the API server has answered) → the CreateFleet request
//	               that brought its node arrived at EC2, p50: compare-latency-single
//	burst-100      a Deployment of 100, whose pods are created at kube-controller-manager's default of 20 requests a second:
//	               first pod seen → the last CreateFleet request that brought a node for them: compare-latency-100
//	burst-1000     the same with 1,000: compare-latency-1000
//	idle           single pods, each after a minute in which nothing happened: compare-latency-idle
//	shortage       single pods while EC2 has none of the 50 cheapest offerings that hold one: compare-latency-shortage
//	consolidation  a cluster of which every node lost half of its pods, until nothing changes any more:
//	               compare-consolidation (time), -evictions and -cost (Slipway's over the peer's: below 1 is better)
//
// off-plan counts pods of Slipway's that landed on a node which other pods were still waiting for, over all parts.
//
// With -docs the tables are written into docs/benchmarks.md, the parts that ran in place of their former selves.
// Run it through `make compare-latency` and `make compare-consolidation`; it owns no product code and imports none of
// Karpenter's. Import level 6 (test).
package main
