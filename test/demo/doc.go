// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo shows Slipway doing its job: a real control plane, an emulated AWS
// account, the sample manifests, and Deployments whose pods fit nowhere. It
// prints what happens as it happens and ends with a table of where the time
// went and what was bought.
//
// It asserts one thing, that every pod runs; measuring is the benchmarks' work.
// Import level 6 (test); cmd/slipway is its face.
package demo
