// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission tests what users meet at a real API server: the schema of
// WorkloadPolicy, the native policies of manifests/policies, and slipway-webhook as
// it is installed, with the rights it is given.
//
// Import level 6 (test).
package admission
