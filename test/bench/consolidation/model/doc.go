// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package model is a cluster in memory in which the decisions of package
// disruption are carried out at once: nodes that go are gone, what is bought is
// there, pods are where the plan has put them. It has no API server, no EC2 and no
// clock but its own, so that whole days of consolidation take seconds.
//
// It is what decisions are tested and measured on; how commands are carried out is
// tested elsewhere. Import level 6 (test).
package model
