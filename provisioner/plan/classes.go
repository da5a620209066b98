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
	hostSig  int             // equal numbers are equal rules about hosts
	nodeBars map[string]bool
}

// fit is how a class and a pool go together.
type fit struct {
	ok bool
	// mask are the offerings that satisfy the class's requirements and hold one of its pods beside the daemonset pods; wide
	// are those too small as well.
	mask, wide *mask
	// custom are requirements on labels the pool lets pods choose; they become part of the launch.
	custom    capacity.Requirements
	customKey string // custom, spelled out
	why       Reason
	detail    string
}

// compile groups the pods and matches every class with every pool.
func (s *solver) compile() {
	for i, p := range s.in.View.Pools {
		s.pools = append(s.pools, preparePool(p, i))
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
	if f.wide.set.Empty() {
		return fit{why: NoOffering, detail: q.noOffering()}
	}
	if f.mask = q.holding(f.wide, c.Requests); f.mask.set.Empty() {
		return fit{why: TooLarge, detail: q.tooLarge(f.wide.set, c.Requests)}
	}
	if q.minValues && !q.flexible(f.mask, c.Requests) {
		return fit{why: TooFew, detail: q.inflexible(f.mask)}
	}
	return f
}

// matchTerms unites the offerings of all alternatives that need no choice of custom labels; only if there is none, the
// first alternative that does is taken.
func (q *pool) matchTerms(c *capacity.Class) fit {
	key := placement(c.Terms)
	if f, ok := q.terms[key]; ok {
		return f
	}
	f, set := q.uniteTerms(c)
	if f.ok {
		f.wide = q.intern(set.And(q.open))
		f.customKey = spell(f.custom)
	}
	q.terms[key] = f
	return f
}

func (q *pool) uniteTerms(c *capacity.Class) (fit, capacity.Set) {
	out := fit{why: Incompatible}
	var narrowed fit
	var all, some capacity.Set
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
				narrowed, some = fit{ok: true, custom: custom}, mask
			}
		case out.ok:
			all = all.Or(mask)
		default:
			out.ok, all = true, mask
		}
	}
	if !out.ok && narrowed.ok {
		return narrowed, some
	}
	return out, all
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
