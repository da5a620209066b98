// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package document writes what comparisons found into a Markdown file: each part has a section between two comments, which is
// replaced when the part is measured anew. Import level 6 (test).
package document
