// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"reflect"
	"slices"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Memo is what follows from pools alone, for whoever plans small batches again and again with the same pools: preparing a pool of
// all instance types takes longer than placing a pod. It never changes.
type Memo struct{ pools map[*capacity.Pool]*derived }

// NewMemo prepares the pools, which must not change any more. before is one of pools that these may equal, nil for none: what holds
// for a pool still is taken from it.
func NewMemo(pools []*capacity.Pool, before *Memo) *Memo {
	m := &Memo{pools: make(map[*capacity.Pool]*derived, len(pools))}
	for _, p := range pools {
		d := before.alike(p)
		if d == nil {
			d = derive(p)
			m.share(p, d)
		}
		m.pools[p] = d
	}
	return m
}

// of is what is known of the pool, worked out if it is none of the memo's.
func (m *Memo) of(p *capacity.Pool) *derived {
	if m != nil {
		if d := m.pools[p]; d != nil {
			return d
		}
	}
	return derive(p)
}

// Free is what a new node of each type of the pool's catalogue has beside daemonset pods, and the most of each resource that any
// has; nil if nothing can be bought.
func (m *Memo) Free(p *capacity.Pool) (byType []capacity.Resources, most capacity.Resources) {
	d := m.of(p)
	return d.free, d.most
}

// alike finds what is known of a pool that sells the same nodes with the same daemonset pods on them.
func (m *Memo) alike(p *capacity.Pool) *derived {
	if m == nil {
		return nil
	}
	for q, d := range m.pools {
		if q.Name == p.Name && q.Catalog == p.Catalog && q.Blocked == p.Blocked && slices.Equal(q.Daemons, p.Daemons) && slices.Equal(q.Available, p.Available) &&
			reflect.DeepEqual(q.Requirements, p.Requirements) && reflect.DeepEqual(q.Taints, p.Taints) {
			return d
		}
	}
	return nil
}

// share makes equal rooms one: pools differ in what they buy more often than in the daemonset pods on it.
func (m *Memo) share(p *capacity.Pool, d *derived) {
	for q, other := range m.pools {
		if q.Catalog == p.Catalog && slices.EqualFunc(other.overhead, d.overhead, capacity.Resources.Equal) {
			d.rooms = other.rooms
			return
		}
	}
}
