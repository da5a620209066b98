// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bound computes a price no plan can go below.
//
// The bound is that of the configuration linear program (Gilmore and Gomory,
// 1961), the strongest bound in common use for bin packing with several bin
// types and resources. A configuration is what one node of one shape can hold:
// so many pods of each kind, whole pods only, within all its resources. With a
// variable for every configuration, the program asks for the cheapest mix of
// configurations, in fractions, that has room for all pods. A plan is such a mix
// in whole numbers, so it costs at least as much. What the bound gives away is
// only that a node cannot be bought by half: with hundreds of pods a fraction of
// a percent.
//
// The program has astronomically many variables, so it is solved by column
// generation: the master program (master.go) knows some configurations, and its
// dual prices y say what each pod is worth at the moment; a knapsack problem for
// each shape (knapsack.go) looks for a configuration whose pods are worth more
// than the node costs; it joins the master, and so on.
//
// # Why the bound is valid
//
// It does not rest on the master being solved exactly, nor on the knapsacks
// being. For any prices y ≥ 0, let θ be the largest ratio, over all shapes, of an
// upper bound on what a node of the shape can hold in worth to what it costs.
// Then y/θ satisfies every constraint of the dual program, and Σ demand·y/θ is a
// lower bound on its optimum (Farley, 1990). The knapsacks are solved by branch
// and bound with an effort limit; where the limit is hit, the largest bound of the
// branches left open takes the place of the optimum, and the shapes that leave most
// open are searched farther in later rounds. The best of all rounds is
// [Result.Value], the master's optimum [Result.Master]; the true optimum of the
// configuration program lies between them.
//
// # What is relaxed
//
// Shapes that another shape beats in price and in everything it can hold are left
// out, which loses nothing. Pool limits, pool weights, minValues and preferences
// are ignored. Of topology rules only what follows here is kept, each of which every
// plan obeys, so the bound stays valid and is merely too low where rules matter
// in other ways:
//
//   - Pods that repel each other on hosts, and pods with the same host port: at
//     most one of them a node.
//   - Pods that spread over hosts: at most maxSkew of them a node. The least
//     loaded host is taken to be an empty new one, which is how Karpenter and Slipway
//     read the rule: a node may come up at any time.
//   - Pods that spread over zones and are all that their own selector counts:
//     with n pods, Z zones and maxSkew k, no zone has less than (n-(Z-1)·k)/Z of
//     them. So many are only accepted by nodes of that zone.
//
// Pod affinity, anti-affinity between zones and rules between different workloads
// are ignored.
//
// [Of] translates the input of a plan; it wants a cluster without nodes. Import
// level 6 (test).
package bound
