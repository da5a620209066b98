// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package view turns what the API server says into capacity.View, the value that
// planning works on: pods into classes, NodePools with their node classes into
// pools, Nodes and NodeClaims into nodes with their phase.
//
// It only reads, from informer caches, and keeps nothing but a memo of pods it
// has already converted. What the caches do not show yet (claims created a
// moment ago, pods reserved on a node) is given to Build by the caller. It never
// decides anything: a pool that cannot be used is in the view with the reason.
//
// Import level 3: imports capacity.
package view
