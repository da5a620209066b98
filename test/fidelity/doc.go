// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fidelity compares Slipway's idea of what fits where with that of the
// two programs it must agree with: on generated pods and nodes, packages view and
// plan with the scheduler's own PreFilter and Filter plugins; on generated
// requirements, the algebra of package capacity with Karpenter's; on generated
// clusters, whole plans with the judge; on a real control plane, what the model
// expects of daemonset pods with those the controllers and the API server make.
//
//	go test ./test/fidelity              a sample, some seconds
//	make fidelity                        1,000,000 pairs and 1,000 plans, some minutes
//
// Every rule the generators have to draw is in coverage_test.go; one that was never
// drawn fails the comparison.
// FIDELITY_PAIRS sets how many pairs are compared (default 40,000, some seconds),
// FIDELITY_PLANS how many plans are judged (default 30), and FIDELITY_SEED where
// generation starts; a disagreement prints its seed. Where
// Slipway differs on purpose, differences_test.go says so and why, one test each.
//
// The package owns no product code. Import level 6 (test).
package fidelity
