// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflight looks, before a process starts, whether the API server serves
// what it works with and grants what it does, and says all that is missing in one
// error. Without it informers would wait for ever for a kind that is not there.
// What each process needs is said by its command.
//
// Import level 6 (cmd).
package preflight
