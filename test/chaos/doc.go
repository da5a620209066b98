// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chaos runs Slipway through seeded storms and checks what must hold
// whatever happens.
//
// A storm ([Storm]) is a cluster with two NodePools whose workloads are created,
// scaled and deleted while processes are killed at random instants and after
// requests of EC2, claims, nodes and instances are deleted by hand, spot instances
// are reclaimed, offerings run out, and EC2 throttles, fails, cuts connections or
// loses answers. All of it follows from the seed.
//
// While it blows, a watcher checks what has to hold at every instant: limits of
// NodePools, one instance a claim. When it is over, everything has to come to rest:
// every pod runs, every instance has its claim and every claim its instance, no pod
// was found forgotten, no process has panicked or asked for a right it has not.
//
// It asserts nothing about speed. Import level 6 (test).
package chaos
