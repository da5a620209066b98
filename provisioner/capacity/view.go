// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import "sync"

// View is the cluster at one instant, as far as planning needs it. Building one
// copies nothing that is large; whoever holds a View may keep it.
type View struct {
	// Pools are sorted by weight, highest first, then name.
	Pools []*Pool
	// Nodes are sorted by ID. Nodes that Slipway did not buy are in it too: pods on them count for topology.
	Nodes []*Node

	once    sync.Once
	holders map[*Class][]*Node
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

// Holders maps every class that has pods on nodes to those nodes, in the order of Nodes; how many there are says Node.Pods. It
// answers "which pods does this selector match, and where are they" in the number of classes, which is far below that of
// pods. Not to be modified. The first call of a view that was not given the index computes it.
func (v *View) Holders() map[*Class][]*Node {
	v.once.Do(func() {
		if v.holders != nil {
			return
		}
		v.holders = map[*Class][]*Node{}
		for _, n := range v.Nodes {
			for c, k := range n.Pods {
				if k > 0 {
					v.holders[c] = append(v.holders[c], n)
				}
			}
		}
	})
	return v.holders
}
