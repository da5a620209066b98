// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package top shows what a cluster buys while it does: `slipway top`.
//
//	Watch (informers) → World (sums, kept up by events) → Frame (what is shown) → text
//	                                                     UI (bubbletea) around it
//
// Events change sums and nothing else; a frame is made at most once a second, from
// nodes and pools and never from all pods, and only the rows that are seen are
// written. It reads from the API server alone and writes nothing. Import level 6; the
// only package that knows a terminal library (docs/adr/0024).
package top
