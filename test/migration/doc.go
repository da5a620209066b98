// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command migration proves that a cluster moves from a stock Karpenter to Slipway
// and back by `slipway migrate` without anything of it being disturbed.
//
// Karpenter is built in test/compare. Both are installed as Deployments, whose pods
// are the real processes: a pod that is deleted is gone when its process has ended. In
// order:
//
//  1. Karpenter buys a node for each of the pods of a Deployment, which run.
//  2. Slipway is installed beside it, and waits for Karpenter's lease.
//  3. `slipway migrate takeover --yes`. The Deployment grows, and Slipway buys for it.
//     One more node, of a pool whose template is then changed, must be found drifted:
//     so drift has been judged. None of the others may have drifted, and no pod, node,
//     claim or instance may be another one than before.
//  4. `slipway migrate handback --yes`, and the same for Karpenter.
//
// Figures: takeover and handback, in seconds; takeover-drifted and handback-drifted, the
// NodeClaims that drifted; takeover-interrupted and handback-interrupted, the pods, nodes
// and instances that are not those from before. All of the latter should be 0.
//
// Run it through `make compare-migrate`. Import level 6 (test).
package main
