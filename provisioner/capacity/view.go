// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

// View is the cluster at one instant, as far as planning needs it. Building one
// copies nothing that is large; whoever holds a View may keep it.
type View struct {
	// Pools are sorted by weight, highest first, then name.
	Pools []*Pool
	// Nodes are sorted by ID. Nodes that Slipway did not buy are in it too: pods on them count for topology.
	Nodes []*Node
}

// Pool returns the pool by name, nil if there is none.
func (v *View) Pool(name string) *Pool {
	for _, p := range v.Pools {
		if p.Name == name {
			return p
		}
	}
	return nil
}
