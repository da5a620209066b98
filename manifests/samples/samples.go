// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package samples embeds the sample manifests, so that the demo and the tests apply the very files that users read.
// It has no code. Import level 0.
package samples

import "embed"

// Files has a folder for each set of manifests that belong together.
//
//go:embed */*.yaml
var Files embed.FS
