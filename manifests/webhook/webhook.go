// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook embeds the manifests of slipway-webhook, so that the tests apply the very files that users do. The
// namespace slipway-system has to exist. It has no code. Import level 0.
package webhook

import _ "embed"

// Configuration has what the API server asks slipway-webhook about.
//
//go:embed configuration.yaml
var Configuration []byte

// Rights has what the process may do, bound to its service account.
//
//go:embed rbac.yaml
var Rights []byte

// Deployment has the replicas, their Service and their budget.
//
//go:embed deployment.yaml
var Deployment []byte
