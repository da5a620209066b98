// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package htmlreport draws a plan or a demo as one HTML file that needs nothing
// else: a timeline of every pod, nodes as boxes filled by their pods, and cost over
// time.
//
//	Page (values) → layout (pure: positions) → template → bytes
//
// Whoever has something to show makes a [Page] of it. It has no script, asks the
// network for nothing and follows the reader's choice of light or dark. What it
// draws is bounded (MaxNodes, MaxPods); a page says what it leaves out.
//
// It never reads a cluster and never decides anything. Import level 6: imports
// nothing of Slipway's.
package htmlreport
