// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/binary"
	"slices"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// launch turns the bin into a launch: every offering its pods can live with and the pool's limits leave room for,
// cheapest first.
func (b *bin) launch(most int) Launch {
	p := b.pool
	out := Launch{Pool: p.Pool}
	demand := b.requests()
	kind := p.Catalog.TypeOf(b.chosen)
	out.Requests = demand.Add(p.overhead[kind])
	chosen := p.Catalog.Types[kind].Capacity
	var largest, least capacity.Resources
	fits := make([]int8, len(p.free))                        // by type: 0 unknown, 1 yes, -1 no
	loose := p.left.spare(p.largest.Max(chosen).Sub(chosen)) // no type is too large for the limits
	roomy := func(o int) bool {
		t := p.Catalog.TypeOf(o)
		if fits[t] == 0 {
			fits[t] = -1
			if demand.Fits(p.free[t]) && (loose || p.left.spare(p.Catalog.Types[t].Capacity.Max(chosen).Sub(chosen))) {
				fits[t] = 1
			}
		}
		return fits[t] > 0
	}
	m := b.offered()
	near := p.near(m, b.chosen, (1+fallback)*most, roomy)
	picked := p.pick(m, near, most, roomy)
	for i, o := range picked {
		off := p.Catalog.Offerings[o]
		if i == 0 {
			least = off.Type.Allocatable
		}
		out.Offerings = append(out.Offerings, off)
		largest, least = largest.Max(off.Type.Capacity), least.Min(off.Type.Allocatable)
	}
	p.left.used = p.left.used.Add(largest.Max(chosen).Sub(chosen))
	offs := slices.Clone(picked)
	for _, o := range near {
		off := &p.Catalog.Offerings[o]
		if o > picked[len(picked)-1] && largest.Max(off.Type.Capacity).Equal(largest) && least.Fits(off.Type.Allocatable) {
			offs = append(offs, o)
		}
	}
	out.Requirements = b.requirements(offs)
	return out
}

// fallback is how many offerings beyond those that were planned with a launch's requirements allow, as a multiple: where EC2
// is out of all the planned ones, the launch goes on to them instead of being planned again. They are neither larger nor
// smaller than the planned ones, so that limits and room hold whichever of them is bought.
const fallback = 2

// dearest is how many times the price of its cheapest offering of a capacity type an offering of a launch may cost: EC2 may
// take any that the launch names.
const dearest = 2

// devices reports whether the instance type has devices of a kind that the other has not: its nodes are not for pods without
// need of one.
func devices(t, other *capacity.InstanceType) bool {
	for _, key := range [...]string{"karpenter.k8s.aws/instance-gpu-count", "karpenter.k8s.aws/instance-accelerator-count"} {
		if t.Labels[key] != "" && other.Labels[key] == "" {
			return true
		}
	}
	return false
}

// near lists up to most offerings of a mask, cheapest first, that fit, are near enough to the cheapest of their capacity type in
// price, and have no devices that the chosen one has not.
func (q *pool) near(m *mask, chosen, most int, fits func(int) bool) []int {
	kinds := q.kindsIn(m)
	first := make(map[string]float64, kinds)
	end := 0.0 // what the dearest may cost that is near its cheapest
	var out []int
	for o := range m.set.All {
		off := &q.Catalog.Offerings[o]
		if len(out) == most || (len(first) == kinds && off.Price > end) {
			break
		}
		if !fits(o) || devices(off.Type, q.Catalog.Offerings[chosen].Type) {
			continue
		}
		least, seen := first[off.CapacityType]
		if !seen {
			least = off.Price
			first[off.CapacityType] = least
			end = dearest * least
		}
		if off.Price <= dearest*least {
			out = append(out, o)
		}
	}
	return out
}

// dealt is a pod of a launch.
type dealt struct {
	it   *item
	pod  *capacity.Pod
	step int
}

// deal takes the bin's pods from their items, in the order of the plan.
func (b *bin) deal() []dealt {
	var all []dealt
	for _, t := range b.takes {
		for i := range t.n {
			all = append(all, dealt{t.it, t.it.pods[i], t.it.steps[i]})
		}
		t.it.pods, t.it.steps = t.it.pods[t.n:], t.it.steps[t.n:]
	}
	slices.SortFunc(all, func(a, b dealt) int { return a.step - b.step })
	return all
}

// hold sets the launch's pods.
func (l *Launch) hold(all []dealt) {
	l.Pods, l.Steps = make([]*capacity.Pod, len(all)), make([]int, len(all))
	for i, d := range all {
		l.Pods[i], l.Steps[i] = d.pod, d.step
	}
}

// product narrows a set of offerings until it is everything the pool sells in its types × zones × capacity types: a
// NodeClaim can only say it that way, and a pod with alternatives ("spot in a, or on-demand in b") must not get the
// combination it did not ask for. The offering that was chosen stays in.
func (q *pool) product(m *mask, chosen int) *mask {
	off := &q.Catalog.Offerings[chosen]
	for _, narrow := range [...]struct{ key, value string }{
		{}, {karpv1.CapacityTypeLabelKey, off.CapacityType}, {corev1.LabelTopologyZone, off.Zone}, {corev1.LabelInstanceTypeStable, off.Type.Name},
	} {
		if narrow.key != "" {
			m = q.at(m, spot{narrow.key: narrow.value}, narrow.key+"="+narrow.value)
		}
		if q.isProduct(m) {
			break
		}
	}
	return m
}

// isProduct reports whether the mask is everything the pool sells in its types × zones × capacity types.
func (q *pool) isProduct(m *mask) bool {
	if m.product == 0 {
		m.product = -1
		if q.Catalog.Product(m.set).And(q.open).AndNot(m.set).Empty() {
			m.product = 1
		}
	}
	return m.product > 0
}

// decided gives labels that are still open one value each, which the node then has and pods can count on. Labels whose value
// the launch chooses stay open.
func (q *pool) decided(reqs capacity.Requirements) capacity.Requirements {
	for _, key := range reqs.Keys() {
		r := reqs[key]
		if _, later := q.Catalog.Choices[key]; later || q.Catalog.Defines(key) || (r.Finite() && len(r.Values()) < 2) {
			continue
		}
		if v, ok := r.Any(); ok {
			reqs = reqs.With(capacity.In(key, v))
		}
	}
	return reqs
}

// requirements are the pool's, with one value for each of its open labels, and the offerings spelled out.
func (b *bin) requirements(offs []int) capacity.Requirements {
	reqs := b.pool.decided(b.pool.Requirements.And(b.custom))
	if id := b.reservation(); id != "" {
		reqs = reqs.With(capacity.In(capacity.ReservationIDLabel, id))
	}
	sale := b.pool.sale(offs)
	return reqs.With(sale[:]...)
}

// sale spells out some offerings as requirements on instance type, zone and capacity type. Many nodes of a plan are sold alike,
// so it is spelled out once.
func (q *pool) sale(offs []int) [3]capacity.Requirement {
	raw := make([]byte, 0, 4*len(offs))
	for _, o := range offs {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(o))
	}
	if out, ok := q.sales[string(raw)]; ok {
		return out
	}
	var types, zones, capacityTypes []string
	known := make([]bool, len(q.Catalog.Types))
	add := func(list []string, v string) []string {
		if slices.Contains(list, v) {
			return list
		}
		return append(list, v)
	}
	for _, o := range offs {
		off := &q.Catalog.Offerings[o]
		if t := q.Catalog.TypeOf(o); !known[t] {
			known[t] = true
			types = append(types, off.Type.Name)
		}
		zones, capacityTypes = add(zones, off.Zone), add(capacityTypes, off.CapacityType)
	}
	out := [3]capacity.Requirement{
		capacity.In(corev1.LabelInstanceTypeStable, types...),
		capacity.In(corev1.LabelTopologyZone, zones...),
		capacity.In(karpv1.CapacityTypeLabelKey, capacityTypes...),
	}
	q.sales[string(raw)] = out
	return out
}
