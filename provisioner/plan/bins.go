// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// bin is a node to buy.
type bin struct {
	host   int // the number of the host
	pool   *pool
	chosen int    // the offering the node was chosen for
	sh     *shape // of the packer it is of
	cost   float64
	free   capacity.Resources
	custom capacity.Requirements
	ports  []capacity.HostPort
	takes  []take
	pins   []pin // labels chosen for the pods' preferences
}

// take is how many pods of an item are in a bin.
type take struct {
	it *item
	n  int
}

// open buys a node of the shape, which must be within the pool's limits.
func (k *packer) open(sh *shape) *bin {
	s := k.s
	b := &bin{host: s.hosts, pool: sh.pool, sh: sh, chosen: sh.offering, cost: sh.cost, free: sh.pool.free[sh.kind]}
	s.hosts++
	s.charge(b)
	s.bins = append(s.bins, b)
	return b
}

// drop takes bins back that hold nothing.
func (s *solver) drop(empty ...*bin) {
	for _, b := range empty {
		s.refund(b)
	}
	s.bins = slices.DeleteFunc(s.bins, func(b *bin) bool { return slices.Contains(empty, b) })
}

func (b *bin) capacity() capacity.Resources {
	return b.pool.Catalog.Types[b.pool.Catalog.TypeOf(b.chosen)].Capacity
}

// room is how many more pods of the item the bin can take, at most n.
func (b *bin) room(it *item, n int) int {
	m := it.masks[b.pool.index]
	if m == nil || !m.set.Has(b.chosen) {
		return 0
	}
	c := it.d.class
	if n = int(min(c.Requests.Count(b.free), int64(n))); n <= 0 {
		return 0
	}
	n = b.beside(it, n)
	if b.pool.minValues && n > 0 && b.reservation() == "" {
		m := b.maskWith(it)
		used := b.requests()
		for n > 0 && !b.pool.flexible(m, used.AddTimes(c.Requests, int64(n))) {
			n /= 2
		}
	}
	return n
}

// beside is how many of n pods of the item may be with those that are in the bin: what labels, host ports and rules about hosts
// say, whatever room there is.
func (b *bin) beside(it *item, n int) int {
	if cu := it.custom[b.pool.index]; len(cu) > 0 && !compatible(b.custom, cu) {
		return 0
	}
	if ports := it.d.class.HostPorts; len(ports) > 0 {
		if portsClash(b.ports, ports) {
			return 0
		}
		n = min(n, 1)
	}
	if len(it.d.hosts.rules) > 0 {
		n = min(n, it.d.hosts.room(b.host))
	}
	return n
}

// compatible reports whether one node can have the labels that both ask for.
func compatible(a, b capacity.Requirements) bool {
	for key, r := range a {
		if o, ok := b[key]; ok && !hasValue(r.Intersect(o)) {
			return false
		}
	}
	return true
}

// put moves n pods of the item into the bin. Domains were counted when the item was split off; hosts are counted here.
func (b *bin) put(it *item, n int) {
	it.left -= n
	if it.row != nil {
		it.row.left -= n
	}
	b.free = b.free.AddTimes(it.d.class.Requests, -int64(n))
	if ports := it.d.class.HostPorts; len(ports) > 0 {
		b.ports = append(slices.Clip(b.ports), ports...)
	}
	if cu := it.custom[b.pool.index]; len(cu) > 0 {
		b.custom = b.custom.And(cu)
	}
	it.d.hosts.record(b.host, n)
	for i := range b.takes {
		if b.takes[i].it == it {
			b.takes[i].n += n
			return
		}
	}
	b.takes = append(b.takes, take{it: it, n: n})
}

// clear puts all pods of the bin back where they came from and returns what it held.
func (b *bin) clear() []take {
	out := b.takes
	for _, t := range out {
		t.it.left += t.n
		if t.it.row != nil {
			t.it.row.left += t.n
		}
		t.it.d.hosts.record(b.host, -t.n)
	}
	b.takes, b.custom, b.ports = nil, nil, nil
	b.free = b.pool.free[b.pool.Catalog.TypeOf(b.chosen)]
	return out
}

// requests is what the pods of the bin ask for, daemonset pods apart.
func (b *bin) requests() capacity.Resources {
	var sum capacity.Resources
	for _, t := range b.takes {
		sum = sum.AddTimes(t.it.d.class.Requests, int64(t.n))
	}
	return sum
}

func (b *bin) reservation() string { return b.pool.Catalog.Offerings[b.chosen].ReservationID }

// maskWith is what all pods of the bin and those of the item accept.
func (b *bin) maskWith(it *item) *mask {
	m := it.masks[b.pool.index].wide
	if have := b.mask(); have != nil && have != m {
		m = b.pool.intern(have.set.And(m.set))
	}
	return m
}

// mask is what all pods of the bin accept, nil for an empty bin.
func (b *bin) mask() *mask {
	var out *mask
	for _, t := range b.takes {
		switch m := t.it.masks[b.pool.index].wide; {
		case out == nil:
			out = m
		case out != m:
			out = b.pool.intern(out.set.And(m.set))
		}
	}
	return out
}
