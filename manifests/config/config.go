// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config embeds the configuration files that Slipway's processes run with by default, so that the binaries, the
// test bed and users read the same ones. It has no code. Import level 0.
package config

import _ "embed"

// Scheduler is the KubeSchedulerConfiguration of slipway-scheduler when --config is not given.
//
//go:embed scheduler.yaml
var Scheduler []byte
