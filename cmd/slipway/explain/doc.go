// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explain tells the story of a pod, node, NodeClaim or NodePool from what
// the API server has of it: `slipway explain`.
//
//	Gather (reads the object and what belongs to it) → Story (pure) → text or JSON
//
// What happened comes from events, conditions and Slipway's annotations, in order
// of time; what holds now is one sentence. Nothing is asked of Slipway's processes
// or of AWS, so it works while they are down, and for whoever may read these
// objects. It writes nothing. Import level 6.
package explain
