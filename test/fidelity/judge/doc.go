// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package judge builds the judge of the stock scheduler profile over a cluster of
// plain objects, for tests and benchmarks that have no scheduler running.
//
// It asserts nothing and remembers nothing but how long verdicts took. Import level 6 (test).
package judge
