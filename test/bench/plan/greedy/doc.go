// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package greedy packs the inputs of the planner's benchmark the way simple
// planners do, so that a price can be compared with something in the same run.
// It works on the problem the lower bound is computed for ([bound.Problem]): which
// pods may go on which shapes, resources, and the caps a node keeps on pods that
// repel each other or spread over hosts. Rules about zones are ignored, which can
// only make the baselines cheaper.
//
// Import level 6 (test).
package greedy
