// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package integration tests Slipway's binaries as processes against a real
// control plane and the EC2 emulator: the way of a pod, restarts at every point
// of it, shortages and errors of EC2, and bad input. It has only tests. Import
// level 6 (test).
package integration
