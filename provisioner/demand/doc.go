// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demand collects the pods that fit nowhere into batches, knows when a
// batch is complete, and how many more pods are about to come.
//
// A batch ([Batcher]) closes when the scheduler's active queue has drained and
// nothing more came for a short debounce: a lone pod is planned at once, a burst
// together. Two caps bound the wait, age and size. The batch keeps pods in the
// order they came.
//
// [Owners] looks ahead: controllers create the pods of a burst one after the
// other, and the first that fits nowhere tells how many will follow it.
//
// [Buffers] knows the CapacityBuffers: room that is to be there before pods ask for
// it.
//
// The package reads informer caches, and no caller waits for a cluster. [Scales]
// asks the API server, in the background and within bounds; [Buffers] does so for
// whoever calls it, and writes the status of buffers, which is all that is ever
// written here. Import level 3: imports API, client and lister packages only.
package demand
