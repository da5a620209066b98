// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// limit is what is left of a pool's limits while a plan takes from it.
type limit struct {
	limited   []corev1.ResourceName
	max, used capacity.Resources
	nodes     int64 // left; -1 without a limit
}

func limitOf(p *capacity.Pool) limit {
	l := limit{max: capacity.FromList(p.Limits), used: p.Usage, nodes: -1}
	for name := range p.Limits {
		l.limited = append(l.limited, name)
	}
	slices.Sort(l.limited)
	if p.LimitNodes != nil {
		l.nodes = max(*p.LimitNodes-p.Nodes, 0)
	}
	return l
}

// allows reports whether one more node of this capacity stays inside the limits.
func (l *limit) allows(c capacity.Resources) bool {
	if l.nodes == 0 {
		return false
	}
	for _, name := range l.limited {
		if l.used.Get(name)+c.Get(name) > l.max.Get(name) {
			return false
		}
	}
	return true
}

func (l *limit) take(c capacity.Resources) {
	l.used = l.used.Add(c)
	if l.nodes > 0 {
		l.nodes--
	}
}

// give takes back what take took.
func (l *limit) give(c capacity.Resources) {
	l.used = l.used.Sub(c)
	if l.nodes >= 0 {
		l.nodes++
	}
}

// String says how much of each limited resource is used.
func (l *limit) String() string {
	var parts []string
	for _, name := range l.limited {
		parts = append(parts, fmt.Sprintf("%s of %s %s in use", capacity.FormatQuantity(name, l.used.Get(name)), capacity.FormatQuantity(name, l.max.Get(name)), name))
	}
	if l.nodes == 0 {
		parts = append(parts, "the limit on nodes is reached")
	}
	return strings.Join(parts, ", ")
}

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
	fits := make([]int8, len(p.free)) // by type: 0 unknown, 1 yes, -1 no
	roomy := func(o int) bool {
		t := p.Catalog.TypeOf(o)
		if fits[t] == 0 {
			fits[t] = -1
			if demand.Fits(p.free[t]) && p.left.spare(p.Catalog.Types[t].Capacity.Max(chosen).Sub(chosen)) {
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
	offs := slices.Clone(out.Offerings)
	for _, o := range near {
		off := &p.Catalog.Offerings[o]
		if o > picked[len(picked)-1] && largest.Max(off.Type.Capacity).Equal(largest) && least.Fits(off.Type.Allocatable) {
			offs = append(offs, *off)
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

// spare reports whether the limits leave room for extra capacity on nodes already counted.
func (l *limit) spare(extra capacity.Resources) bool {
	for _, name := range l.limited {
		if l.used.Get(name)+extra.Get(name) > l.max.Get(name) {
			return false
		}
	}
	return true
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
func (b *bin) requirements(offs []capacity.CatalogOffering) capacity.Requirements {
	var types, zones, capacityTypes []string
	add := func(list []string, v string) []string {
		if slices.Contains(list, v) {
			return list
		}
		return append(list, v)
	}
	for i := range offs {
		types, zones, capacityTypes = add(types, offs[i].Type.Name), add(zones, offs[i].Zone), add(capacityTypes, offs[i].CapacityType)
	}
	reqs := b.pool.decided(b.pool.Requirements.And(b.custom))
	if id := b.reservation(); id != "" {
		reqs = reqs.With(capacity.In(capacity.ReservationIDLabel, id))
	}
	return reqs.With(
		capacity.In(corev1.LabelInstanceTypeStable, types...),
		capacity.In(corev1.LabelTopologyZone, zones...),
		capacity.In(karpv1.CapacityTypeLabelKey, capacityTypes...),
	)
}
