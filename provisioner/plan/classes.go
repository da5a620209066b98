// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// demand is one class with the pods of it that still want a place.
type demand struct {
	class    *capacity.Class
	priority int32
	pods     []*capacity.Pod // in UID order; taken from the front
	pools    []fit           // one a pool, in the view's order
	rules    []*rule         // topology rules that bind the class
	counted  []*counter      // counters its pods add to
	keys     []string        // topology keys that matter to it, host names apart
	hosts    hostRules       // the part of its rules that is about hosts
	nodeBars map[string]bool
}

// fit is how a class and a pool go together.
type fit struct {
	ok bool
	// mask are the offerings that satisfy the class's requirements and hold one of its pods beside the daemonset pods.
	mask capacity.Set
	// custom are requirements on labels the pool lets pods choose; they become part of the launch.
	custom capacity.Requirements
	why    Reason
	detail string
}

// pool is a capacity.Pool prepared for one Solve.
type pool struct {
	*capacity.Pool
	open     capacity.Set         // offerings the pool may buy now
	free     []capacity.Resources // by type: allocatable without the daemonset pods
	overhead []capacity.Resources // by type: the daemonset pods
	left     limit
}

// compile groups the pods and matches every class with every pool.
func (s *solver) compile() {
	for _, p := range s.in.View.Pools {
		s.pools = append(s.pools, preparePool(p))
	}
	byClass := map[*capacity.Class]map[int32]*demand{}
	for _, p := range s.in.Pods {
		m := byClass[p.Class]
		if m == nil {
			m = map[int32]*demand{}
			byClass[p.Class] = m
		}
		d := m[p.Priority]
		if d == nil {
			d = &demand{class: p.Class, priority: p.Priority}
			m[p.Priority] = d
			s.demands = append(s.demands, d)
		}
		d.pods = append(d.pods, p)
	}
	bars := s.barsByClass()
	fits := map[*capacity.Class][]fit{}
	for _, d := range s.demands {
		slices.SortFunc(d.pods, func(a, b *capacity.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
		if fits[d.class] == nil {
			fits[d.class] = s.matchPools(d.class, bars[d.class])
		}
		d.pools = fits[d.class]
		d.nodeBars = bars[d.class].nodes
	}
	// Priority first; then size by the larger share of a typical node (1 core ≈ 4 GiB); ties by ID, so that the order of the input never matters.
	slices.SortFunc(s.demands, func(a, b *demand) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(size(b.class.Requests), size(a.class.Requests)), strings.Compare(a.class.ID, b.class.ID))
	})
}

// size weighs a request: millicores plus memory at 4 GiB a core, extended resources first of all.
func size(r capacity.Resources) int64 {
	n := r.CPU + r.Memory/(4<<20)
	for _, q := range r.Extended {
		n += q.Value * 64000
	}
	return n
}

type bars struct {
	pools map[string]string
	nodes map[string]bool
}

func (s *solver) barsByClass() map[*capacity.Class]bars {
	out := map[*capacity.Class]bars{}
	for _, b := range s.in.Barred {
		v, ok := out[b.Class]
		if !ok {
			v = bars{pools: map[string]string{}, nodes: map[string]bool{}}
			out[b.Class] = v
		}
		if b.Node != "" {
			v.nodes[b.Node] = true
		} else {
			v.pools[b.Pool] = b.Reason
		}
	}
	return out
}

func preparePool(p *capacity.Pool) *pool {
	q := &pool{Pool: p, left: limitOf(p)}
	if p.Blocked != "" || p.Catalog == nil {
		return q
	}
	q.open = p.Catalog.Match(p.Requirements)
	if p.Available != nil {
		q.open = q.open.And(p.Available)
	}
	q.daemons()
	return q
}

// daemons computes what the daemonset pods take of each type. A daemonset whose terms name no label that differs
// between types takes the same everywhere, which is nearly all of them.
func (q *pool) daemons() {
	n := len(q.Catalog.Types)
	q.free, q.overhead = make([]capacity.Resources, n), make([]capacity.Resources, n)
	var same capacity.Resources
	var differ []*capacity.Class
	for _, d := range q.Daemons {
		if q.uniform(d) {
			if q.Runs(d, q.Catalog.Types[0], nil) {
				same = same.Add(d.Requests)
			}
			continue
		}
		differ = append(differ, d)
	}
	for i, t := range q.Catalog.Types {
		over := same
		for _, d := range differ {
			if q.Runs(d, t, nil) {
				over = over.Add(d.Requests)
			}
		}
		q.overhead[i] = over
		q.free[i] = t.Allocatable.Sub(over)
	}
}

func (q *pool) uniform(d *capacity.Class) bool {
	if len(q.Catalog.Types) == 0 {
		return false
	}
	for _, term := range d.Terms {
		for key := range term {
			if q.Catalog.Defines(key) {
				return false
			}
		}
	}
	return true
}

func (s *solver) matchPools(c *capacity.Class, b bars) []fit {
	out := make([]fit, len(s.pools))
	for i, p := range s.pools {
		if why, barred := b.pools[p.Name]; barred {
			out[i] = fit{why: Refused, detail: why}
			continue
		}
		out[i] = p.match(c)
	}
	return out
}

// match checks a class against a pool in the order of the Reason constants.
func (q *pool) match(c *capacity.Class) fit {
	if c.Unsupported != "" {
		return fit{why: Incompatible, detail: c.Unsupported}
	}
	if q.Blocked != "" {
		return fit{why: PoolNotReady, detail: q.Blocked}
	}
	if q.Catalog == nil {
		return fit{why: PoolNotReady, detail: "nothing is known about its instance types yet"}
	}
	if t, ok := c.Tolerates(q.Taints); !ok {
		return fit{why: TaintNotToler, detail: fmt.Sprintf("taint %s is not tolerated", t.ToString())}
	}
	f := q.matchTerms(c)
	if !f.ok {
		return f
	}
	if f.mask = f.mask.And(q.open); f.mask.Empty() {
		return fit{why: NoOffering, detail: q.noOffering()}
	}
	sized := q.holding(f.mask, c.Requests)
	if sized.Empty() {
		return fit{why: TooLarge, detail: q.tooLarge(f.mask, c.Requests)}
	}
	f.mask = sized
	return f
}

// matchTerms unites the offerings of all alternatives that need no choice of custom labels; only if there is none, the
// first alternative that does is taken.
func (q *pool) matchTerms(c *capacity.Class) fit {
	out := fit{why: Incompatible}
	var narrowed fit
	for _, term := range c.Terms {
		if m := q.Requirements.Compatible(term, q.Catalog.Defines); m != nil {
			out.detail = cmp.Or(out.detail, m.Error())
			continue
		}
		custom := q.custom(term)
		mask := q.Catalog.Match(q.Requirements.And(term))
		if mask.Empty() {
			out.detail = cmp.Or(out.detail, fmt.Sprintf("no instance type satisfies %s together with the pool's requirements", term))
			continue
		}
		switch {
		case len(custom) > 0:
			if !narrowed.ok {
				narrowed = fit{ok: true, mask: mask, custom: custom}
			}
		case out.ok:
			out.mask = out.mask.Or(mask)
		default:
			out.ok, out.mask = true, mask
		}
	}
	if !out.ok && narrowed.ok {
		return narrowed
	}
	return out
}

// custom returns the part of a term that narrows labels the pool leaves open.
func (q *pool) custom(term capacity.Requirements) capacity.Requirements {
	var out capacity.Requirements
	for key, r := range term {
		if q.Catalog.Defines(key) {
			continue
		}
		have, ok := q.Requirements[key]
		if !ok || (have.Finite() && len(have.Values()) <= 1) {
			continue
		}
		if out == nil {
			out = capacity.Requirements{}
		}
		out[key] = have.Intersect(r)
	}
	return out
}

// holding returns the offerings of mask whose type has room for r beside its daemonset pods.
func (q *pool) holding(mask capacity.Set, r capacity.Resources) capacity.Set {
	fits := make([]int8, len(q.free)) // 0 unknown, 1 yes, -1 no
	out := capacity.NewSet(len(q.Catalog.Offerings))
	for i := range mask.All {
		t := q.Catalog.TypeOf(i)
		if fits[t] == 0 {
			fits[t] = -1
			if r.Fits(q.free[t]) {
				fits[t] = 1
			}
		}
		if fits[t] > 0 {
			out.Add(i)
		}
	}
	return out
}

func (q *pool) noOffering() string {
	all := q.Catalog.Match(q.Requirements)
	if all.Empty() {
		return "no instance type satisfies the pool's requirements"
	}
	return fmt.Sprintf("EC2 is out of capacity for the offerings that would do (%d of the pool's %d are left)", q.open.Len(), all.Len())
}

// tooLarge names the resource that no type has enough of, with the most any type has left for pods.
func (q *pool) tooLarge(mask capacity.Set, r capacity.Resources) string {
	var best capacity.Resources
	for i := range mask.All {
		best = best.Max(q.free[q.Catalog.TypeOf(i)])
	}
	name, asked, have, ok := r.Shortage(best)
	if !ok { // each resource alone is available somewhere, but not all on one type
		name = corev1.ResourceMemory
		if asked, have = r.Memory, q.mostWith(mask, r); have < 0 {
			return fmt.Sprintf("no single instance type has %s at once", r)
		}
	}
	return fmt.Sprintf("asks for %s %s, the largest instance type that would do has %s left after daemonset pods",
		capacity.FormatQuantity(name, asked), name, capacity.FormatQuantity(name, max(have, 0)))
}

// mostWith is the most memory on a type that has enough CPU, -1 if none has.
func (q *pool) mostWith(mask capacity.Set, r capacity.Resources) int64 {
	most := int64(-1)
	for i := range mask.All {
		if f := q.free[q.Catalog.TypeOf(i)]; f.CPU >= r.CPU {
			most = max(most, f.Memory)
		}
	}
	return most
}
