// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demand collects the pods that fit nowhere into batches, and knows when
// a batch is complete.
//
// A batch closes when the scheduler's active queue has drained and nothing more
// came for a short debounce: a lone pod is planned at once, a burst together.
// Two caps bound the wait, age and size. The package keeps pods in the order
// they came and decides nothing else; it never talks to a cluster.
//
// Import level 3: imports Kubernetes API value packages only.
package demand
