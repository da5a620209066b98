// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package capacity is Slipway's domain model: what a pod asks for, what a node
// pool may buy, what EC2 sells and what the cluster already has.
//
// The model in one paragraph. A [Pod] belongs to a [Class]: all pods with the
// same constraints share one Class value, so everything that depends on
// constraints is computed once a class and not once a pod. A [Pool] is a
// NodePool with its node class resolved into a list of [InstanceType] values;
// each type is sold as [Offering] values (zone × capacity type) at a price. A
// [Node] is a node that exists or is on its way. A [View] is all of it at one
// instant. Label constraints on either side are [Requirements], sets of allowed
// values a key, with the algebra Karpenter v1 defines; quantities are
// [Resources], integer vectors.
//
// The package owns the vocabulary and its arithmetic (what fits, what is
// compatible, which error is of which kind). It never talks to a cluster or a
// cloud, and has no client, context, clock, logger or randomness: package view
// fills it, package plan computes on it. Values are immutable once built and
// safe to share between goroutines.
//
// Import level 1: imports only Kubernetes API value packages and the standard
// library.
package capacity
