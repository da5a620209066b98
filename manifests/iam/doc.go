// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package iam holds the IAM policies of Slipway's processes and of its nodes; see
// README.md. They are documents for people and for tests: the product never reads them.
//
// Import level 0: imports nothing of Slipway.
package iam

import "embed"

// Policies are the policy documents, with placeholders.
//
//go:embed *.json
var Policies embed.FS
