// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides which nodes to buy and which pod goes where. It is one
// pure function, [Solve]: the same input gives the same result on any machine,
// in any order of the pods.
//
// Solve works in numbered steps, each in its own file:
//
//  1. compile   pods are grouped by class; each class is matched against each pool once (classes.go, pools.go)
//  2. reuse     nodes that exist or are on their way take what fits them (nodes.go)
//  3. split     classes with zone-like topology rules get a quota a domain (counters.go, topology.go, split.go)
//  4. pack      what is left is packed by price into new nodes (see below)
//  5. finish    every new node gets its ranked offerings inside the pool's limits (finish.go)
//  6. explain   every pod without a place gets the nearest pool and the one reason that blocks it (explain.go)
//
// Higher pod priority is served first; within a priority, larger pods first.
// Pool weight decides before price.
//
// # Packing
//
// Pods that are one to the packing (same request, offerings and rules about
// hosts) are a row (rows.go); offerings that no other beats are the shapes
// (shapes.go). A linear program over whole fillings of shapes (columns.go,
// master.go) is solved by column generation: its dual prices say what each pod is
// worth, and fillings worth more than their node costs are found by filling quickly
// (fill.go) or, where that finds none, by branch and bound (knapsack.go, relax.go).
// Whole nodes of its solution are bought, and it is solved again for
// the rest; what stays is packed one node at a time, the filling worth most per
// dollar first (pack.go, fill.go). Groups of nodes that waste most are then packed anew for
// as long as that saves money (improve.go). All work is bounded by counts of
// fillings, never by time, so that the answer does not depend on the machine.
//
// # Concentration
//
// A node that could hold everything there is to pack counts as [DefaultEvenness]
// dearer than its price, one that could hold a tenth of it a tenth of that dearer,
// and so on. Of nodes that cost about the same for what they hold the smaller
// ones are bought, and no workload ends on one huge node without need. A pool
// moves it with an annotation (capacity.EvennessAnnotation). Pods of one size are
// dealt to nodes evenly whatever workload they are of.
//
// The package never sees a client, context, clock, logger or source of
// randomness, and "does not fit" is a result, not an error. Import level 2:
// imports capacity only.
package plan
