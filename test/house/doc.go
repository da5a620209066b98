// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package house holds the rules of the source tree that no compiler checks, and
// checks them: which package may import which (see [Units] and [Bans], each with
// its reason), that every package says what it is, that every file names its
// licence, and that main functions only wire. It also holds the documentation
// against the sources: links, flags, annotations, metrics, events and examples
// that pages name have to exist ([CheckDocs]).
//
// It reads source text alone: no package is loaded or type-checked, so a run
// takes well under a second. It never changes a file. Style is the linters'
// business, not this package's.
//
// Import level 6 (test).
package house
