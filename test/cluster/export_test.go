// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

// For the external tests.
var (
	NodeIdentity = nodeIdentity
	AsNode       = asNode
)
