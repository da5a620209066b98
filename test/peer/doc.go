// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package peer runs the stock Karpenter controller for AWS and a stock kube-scheduler
// on a bed, with nothing but their environment and flags pointing at it, and reads
// Karpenter's log for what real EC2 would not have caused.
//
// The binaries are builds of their own (`make compare-build`): nothing of Karpenter's
// is linked here, and it is never changed. Import level 6 (test).
package peer
