// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet is a cluster of many nodes that Slipway has bought itself, for benchmarks of what it costs to have them: scheduler and
// controller as installed, a replica of the webhook, the EC2 emulator, a kubelet in this process for every machine, and an API
// server that notes who asks for what. Its pools are such that consolidation looks at every node and finds nothing to do.
//
// It measures nothing by itself. Import level 6 (test).
package fleet
