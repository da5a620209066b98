// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

// Rebuild does what every refresh does with its answer: it swaps in new facts and rebuilds the catalogues in use.
func (cs *Catalogs) Rebuild() { cs.update(func(*market) {}) }
