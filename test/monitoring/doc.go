// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitoring holds docs/reference/metrics.md, the dashboard and the alerts
// against the metrics that Slipway's packages register. It starts nothing.
//
//	go test ./test/monitoring -update    writes the reference anew
//
// Import level 6 (test).
package monitoring
