// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package view turns what the API server says into capacity.View, the value that
// planning works on: pods into classes, NodePools with their node classes into
// pools, Nodes and NodeClaims into nodes with their phase.
//
// It only reads, from informer caches. What the caches do not show yet (claims
// created a moment ago, pods reserved on a node) is given to Build by the caller.
// It never decides anything: a pool that cannot be used is in the view with the
// reason. Who but Slipway acts in the cluster is asked apart ([Lease]).
//
// A view of a large cluster costs what has changed since the last one: a builder
// that follows informers (Follow) keeps the nodes of its last view and converts
// only those something happened to; all others are shared between views, which
// is safe because nobody modifies them. Most events of running pods change
// nothing a view shows and are dropped when they arrive. A builder that follows
// nothing starts anew from lists each time; both ways are one code.
//
// Import level 3: imports capacity.
package view
