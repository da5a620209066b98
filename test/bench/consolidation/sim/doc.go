// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sim runs the disruption controller in one process against an API server
// in memory and a clock that is moved by hand. What other processes do is played
// by the package: EC2 boots machines after a while, pods are scheduled and nodes are
// bought for those without room, claims that are deleted are drained inside
// PodDisruptionBudgets and end.
//
// It is what the carrying out of commands is tested and measured on. Import level 6
// (test).
package sim
