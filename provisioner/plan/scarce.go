// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// countReservations adds up how many instances each reservation still takes. Pools that share one must agree; if they do not, the
// least is believed.
func (s *solver) countReservations() {
	s.reservations = map[string]int{}
	for _, p := range s.in.View.Pools {
		for id, n := range p.Reservations {
			if have, ok := s.reservations[id]; !ok || n < have {
				s.reservations[id] = n
			}
		}
	}
}

// affords reports whether one more node of the shape is within its pool's limits and its reservation.
func (k *packer) affords(sh *shape) bool {
	if id := sh.reservation(); id != "" {
		if n, counted := k.s.reservations[id]; counted && n <= 0 {
			return false
		}
	}
	return sh.pool.left.allows(sh.pool.Catalog.Types[sh.kind].Capacity)
}

// whyNot says why a node of the shape is not afforded.
func (k *packer) whyNot(sh *shape) string {
	if id := sh.reservation(); id != "" && sh.pool.left.allows(sh.pool.Catalog.Types[sh.kind].Capacity) {
		return fmt.Sprintf("capacity reservation %s takes no more instances", id)
	}
	return sh.pool.left.String()
}

func (sh *shape) reservation() string { return sh.pool.Catalog.Offerings[sh.offering].ReservationID }

// charge takes the node from its pool's limits and its reservation.
func (s *solver) charge(b *bin) {
	b.pool.left.take(b.capacity())
	s.reserve(b, -1)
}

// refund takes back what charge took.
func (s *solver) refund(b *bin) {
	b.pool.left.give(b.capacity())
	s.reserve(b, 1)
}

func (s *solver) reserve(b *bin, n int) {
	if id := b.pool.Catalog.Offerings[b.chosen].ReservationID; id != "" {
		if _, counted := s.reservations[id]; counted {
			s.reservations[id] += n
		}
	}
}

// byReservation fills reserved capacity, which is paid for already, before anything is bought.
func (k *packer) byReservation() {
	all, shapes := k.allShapes, k.shapes
	isReserved := func(sh *shape) bool {
		return sh.pool.Catalog.Offerings[sh.offering].CapacityType == karpv1.CapacityTypeReserved
	}
	k.shapes = slices.DeleteFunc(slices.Clone(all), func(sh *shape) bool { return !isReserved(sh) })
	if len(k.shapes) > 0 {
		k.allShapes = k.shapes
		k.byRow()
		for _, r := range k.rows {
			r.value = 0
		}
	}
	k.allShapes = slices.DeleteFunc(slices.Clone(all), isReserved)
	k.shapes = slices.DeleteFunc(slices.Clone(shapes), isReserved)
}

// pinned narrows what a node may be bought as: a node in a reservation is pinned to it, any other keeps out of all of
// them, so that what a plan counts is what is used.
func (q *pool) pinned(m *mask, chosen int) *mask {
	id := q.Catalog.Offerings[chosen].ReservationID
	if id != "" {
		return q.intern(m.set.And(q.Catalog.WithValue(capacity.ReservationIDLabel, id)))
	}
	return q.intern(m.set.AndNot(q.Catalog.WithValue(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeReserved)))
}

// picky reports whether the pool has a minValues floor.
func (q *pool) picky() bool {
	for _, r := range q.Requirements {
		if r.MinValues > 0 {
			return true
		}
	}
	return false
}

// flexible reports whether the offerings of a mask that hold r meet the pool's minValues.
func (q *pool) flexible(m *mask, r capacity.Resources) bool {
	_, _, _, ok := q.Catalog.Flexibility(q.Requirements, q.holding(m, r).set)
	return ok
}

// inflexible says which floor the mask does not meet.
func (q *pool) inflexible(m *mask) string {
	key, have, want, _ := q.Catalog.Flexibility(q.Requirements, m.set)
	return fmt.Sprintf("minValues of %s is %d, and only %d values would do", key, want, have)
}

// roomFor cuts the room of a shape of a picky pool down to what enough other offerings have, too.
func (k *packer) roomFor(sh *shape) bool {
	q := sh.pool
	if !q.minValues || sh.reservation() != "" {
		return true
	}
	free := q.free[sh.kind]
	for part := int64(10); part > 0; part-- {
		r := capacity.Resources{CPU: max(free.CPU, 0) * part / 10, Memory: max(free.Memory, 0) / 10 * part}
		if q.flexible(q.intern(q.open), r) {
			for d := range 2 {
				sh.room[d] = sh.room[d] * float64(part) / 10
			}
			return true
		}
	}
	return false
}

// pick chooses up to most offerings of a mask, cheapest first: those that are near and, before them, what the pool's minValues
// ask for of all that fit.
func (q *pool) pick(m *mask, near []int, most int, fits func(o int) bool) []int {
	if !q.minValues {
		return near[:min(most, len(near))]
	}
	var all, first []int
	for o := range m.set.All {
		if fits(o) {
			all = append(all, o)
		}
	}
	for _, key := range q.Requirements.Keys() {
		floor := q.Requirements[key].MinValues
		seen := map[string]bool{}
		for _, o := range all {
			if v := q.valueOf(key, o); len(seen) < floor && v != "" && !seen[v] {
				seen[v] = true
				if !slices.Contains(first, o) {
					first = append(first, o)
				}
			}
		}
	}
	for _, o := range near {
		if len(first) < most && !slices.Contains(first, o) {
			first = append(first, o)
		}
	}
	slices.Sort(first)
	return first
}

// valueOf is the value of a label on nodes of an offering, empty if there is none.
func (q *pool) valueOf(key string, o int) string {
	for _, v := range q.valuesIn(key, q.intern(q.open)) {
		if q.Catalog.WithValue(key, v).Has(o) {
			return v
		}
	}
	return ""
}
