// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/binary"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// mask is a set of offerings of one pool. Equal sets of a pool are one mask, so that what is derived from a set is
// derived once however many classes share it.
type mask struct {
	set capacity.Set
	// best are the cheapest offerings of each type and capacity type in the set, by price.
	best []int
}

type maskKey struct {
	pool int
	set  string
}

// intern returns the mask of the set, nil for an empty set.
func (s *solver) intern(pool int, set capacity.Set) *mask {
	if set.Empty() {
		return nil
	}
	raw := make([]byte, 0, 8*len(set))
	for _, w := range set {
		raw = binary.LittleEndian.AppendUint64(raw, w)
	}
	key := maskKey{pool: pool, set: string(raw)}
	m := s.masks[key]
	if m == nil {
		m = &mask{set: set, best: s.pools[pool].Catalog.Cheapest(set)}
		s.masks[key] = m
	}
	return m
}
