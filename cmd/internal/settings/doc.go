// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package settings is what Slipway's own processes (slipway-scheduler has
// kube-scheduler's ways) have in common in reading their flags: each flag has an
// environment variable, log levels have names, and a kubeconfig is found.
//
// Import level 6 (cmd).
package settings
