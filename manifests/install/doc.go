// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install embeds the rendered installations, so that the test bed grants Slipway's processes what users grant and
// nothing more. It has no code. Import level 0.
package install

import _ "embed"

// Joint is the installation with one Deployment, whose pod holds scheduler and controller.
//
//go:embed joint/slipway.yaml
var Joint []byte

// Split is the installation with a Deployment, a service account and an AWS role a process.
//
//go:embed split/slipway.yaml
var Split []byte

// Admission is Split with slipway-webhook and the native policies.
//
//go:embed admission/slipway.yaml
var Admission []byte
