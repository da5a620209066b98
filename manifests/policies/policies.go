// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policies embeds the native admission policies, made by webhook/native. It has no code. Import level 0.
package policies

import "embed"

// Files has one file for each group of rules.
//
//go:embed *.yaml
var Files embed.FS
