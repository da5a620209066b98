// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hypothesis has the terms in which a plan is put before the judge: nodes
// that do not exist yet, the pods that are to be placed on them or on nodes of the
// cluster, and which of those the scheduler would refuse.
//
// Whoever asks (package provisioner) and whoever answers (scheduler/simulate) share
// them, so that nothing has to be changed from one form into another. The package
// decides nothing and has no behaviour. Import level 3.
package hypothesis
