// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package samples embeds the sample manifests, so that the demo and the tests apply the very files that users read.
// It has no code. Import level 0.
package samples

import "embed"

// Files has the folders general and spot-first.
//
//go:embed general/*.yaml spot-first/*.yaml
var Files embed.FS
