// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bed is Slipway at work on one machine: a real control plane
// (test/cluster), an AWS account (test/ec2emu) whose machines join through a
// fake kubelet, and Slipway's own binaries as processes of their own. The demo,
// the integration tests and the latency benchmarks all stand on it.
//
// An [Observer] watches what happens and puts the instants of every pod's way
// together: created, offered, planned, requested from EC2, launched, registered,
// ready, bound.
//
// The package never talks to anything but loopback and leaves nothing behind.
// Import level 6 (test).
package bed
