// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package capacity is Slipway's domain model: what a pod asks for, what a node
// pool may buy, what EC2 sells and what the cluster already has.
//
// # A short tour
//
// A [Pod] belongs to a [Class]: all pods with the same constraints share one
// Class value, compared by pointer, so everything that depends on constraints is
// computed once a class and not once a pod. A class says where its pods can go
// (Terms, Tolerations, HostPorts, Spread, Affinity, AntiAffinity), how much they
// take (Requests), what they would like (Preferred and the soft rules), and, if
// nothing can be bought for them whatever the pools, why (Unsupported).
//
// A [Pool] is a NodePool with its node class resolved: a [Catalog] of
// [InstanceType] values, each sold as [Offering] values (zone × capacity type,
// and reservation) at a price. What a pool's nodes lose to daemonset pods is
// exact for each type: [Pool.Overhead] and [Pool.RunsOn].
//
// A [Node] is a node that exists or is on its way; its [Phase] says how far it
// has come. What is decided about it is in Labels, what is still open (a claim
// without an instance may become any of several types) in Requirements. A
// [View] is all of it at one instant.
//
// # The three data types everything is made of
//
// [Requirements] are label constraints of either side: for each key the set of
// values it may have, as Karpenter v1 defines them (sets and complements of sets,
// integer bounds, minValues, deprecated keys read as their successors). The one
// deliberate difference is that a requirement remembers whether the label has to
// be there; see [Requirement].
//
// [Resources] are integer vectors with saturating arithmetic. Volumes are a part
// of them with limits of their own kind.
//
// [Set] is a bit set over the offerings of one catalogue. Offerings are sorted by
// price, so the first element of a set is its cheapest. Label values are interned
// in the catalogue's index: "which offerings satisfy these requirements" is one
// OR for each value and one AND for each key.
//
// The examples of this package show each of them at work.
//
// # What it owns
//
// The package owns the vocabulary and its arithmetic (what fits, what is
// compatible, which error is of which kind). It never talks to a cluster or a
// cloud, and has no client, context, clock, logger or randomness: package view
// fills it, package plan computes on it. Values are immutable once built and
// safe to share between goroutines without locks.
//
// Import level 1: imports only Kubernetes API value packages and the standard
// library.
package capacity
