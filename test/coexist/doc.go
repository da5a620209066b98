// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command coexist proves that Slipway and a stock Karpenter, both at work on one
// cluster and one account, buy nothing for each other's pods.
//
// Karpenter is built in test/compare and holds the leader lease that
// slipway-controller waits for; a stock kube-scheduler schedules default-scheduler's
// pods. There are two NodePools, and either could serve any pod: "theirs" is
// Karpenter's, and "ours", whose class is named under the group slipway.sh, is no
// business of Karpenter's. In order:
//
//  1. Karpenter buys for a pod of default-scheduler: it is able to.
//  2. Pods with schedulerName slipway wait for their nodes, first while EC2 has not
//     answered and their nodes have no name, then while their machines boot. In
//     both states Karpenter is seen to plan. It must have bought nothing.
//  3. Karpenter ends. slipway-controller takes the lease, and the pods run.
//  4. A pod of default-scheduler that fits nowhere is there when Slipway plans for one
//     of its own. Slipway must buy for its own alone.
//
// The two have names of their own for the cluster: under one name, a running
// Karpenter ends instances of the cluster whose NodeClaims it does not know.
//
// Figures: launches-beside, the nodes Karpenter bought for pods of Slipway's, and
// served-unasked, the pods of others that Slipway bought for; both should be 0.
//
// Run it through `make compare-coexistence`. Import level 6 (test).
package main
