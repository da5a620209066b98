// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command stock lets a foreign client judge the emulator: it runs the stock
// Karpenter controller for AWS, built in test/compare, and a stock
// kube-scheduler against a real control plane and the emulator, with nothing but
// the environment pointing at it.
//
// Karpenter must become ready, buy nodes for a Deployment, one of them from a
// capacity reservation, replace a spot instance that is reclaimed, consolidate
// after a scale-down and terminate all nodes at the end, all of it under EC2's
// published request rates. The command fails if a step doesn't happen in time, if
// Karpenter logs an error that real EC2 would not have caused, or if the emulator
// refused a request for what it doesn't know. Run it through
// `make compare-emulator`.
//
// It never changes Karpenter, and reads nothing of Slipway's. Import level 6
// (test).
package main
