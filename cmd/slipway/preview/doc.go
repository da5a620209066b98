// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preview answers what Slipway would buy for the pods of some manifests or
// for those that wait in a cluster, without buying it: `slipway plan`.
//
//	files → Input → (view, plan, judge: the product's own) → Preview → text or JSON
//
// Read decodes manifests and fills in what an API server would. Offline says what
// is for sale: the instance catalogue and prices of the emulated AWS account, whose
// node classes count as resolved. Solve runs the planner and the judge of the
// scheduler process on it.
//
// ReadCluster and Live take both from a cluster and from AWS instead. Nothing is ever
// written to either. Import level 6: imports
// provisioner and, for the catalogue and the judge, test/ec2emu and test/fidelity.
package preview
