// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crds embeds the definitions of Slipway's own kinds, made from api/ by controller-gen. Karpenter's are installed
// from its own charts. It has no code but the embedding. Import level 0.
package crds

import "embed"

// Files holds one file a kind.
//
//go:embed *.yaml
var Files embed.FS
