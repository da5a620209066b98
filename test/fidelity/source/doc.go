// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package source makes a view.Source of plain objects, for tests that need a
// view of a cluster that does not run. It copies nothing and reports nothing: what
// a test changes in an object is what the next view shows.
//
// It never starts anything and asserts nothing. Import level 6 (test).
package source
