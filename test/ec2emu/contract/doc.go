// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command contract holds the emulator against moto, an independent emulation of
// AWS: it sends both the same SDK calls, in the same order, and compares which
// members of the answers are set, what kind of value they have, and the codes of
// errors, for every action that both know.
//
// Where they differ, differences.txt says who is right and why; a difference that
// it doesn't list fails, and so does a line of it that nothing matches any more.
// Run it through `make contract`, which installs moto for the run.
//
// It never judges semantics that moto leaves out (capacity, prices, boot): tests
// and the stock Karpenter do that. Import level 6 (test).
package main
