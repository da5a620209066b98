// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package failure says what stands between a process and the cluster or AWS, in one
// sentence with what to do about it, where libraries say it in many words or in
// none that help.
//
// Import level 6 (cmd).
package failure
