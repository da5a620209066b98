// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides which nodes to buy and which pod goes where. It is one
// pure function, [Solve]: the same input gives the same result on any machine,
// in any order of the pods.
//
// Solve works in numbered steps, each in its own file:
//
//  1. compile   pods are grouped by class; each class is matched against each pool once (classes.go)
//  2. reuse     nodes that exist or are on their way take what fits them (nodes.go)
//  3. split     classes with zone-like topology rules get a quota a domain (topology.go, split.go)
//  4. pack      what is left is packed by price into new nodes (pack.go, fill.go, worth.go)
//  5. finish    every new node gets its ranked offerings inside the pool's limits (finish.go)
//  6. explain   every pod without a place gets the nearest pool and the one reason that blocks it (explain.go)
//
// Higher pod priority is served first; within a priority, larger pods first.
// Pool weight decides before price.
//
// The package never sees a client, context, clock, logger or source of
// randomness, and "does not fit" is a result, not an error. Import level 2:
// imports capacity only.
package plan
