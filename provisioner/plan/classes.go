// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
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
	company  bool    // daemonset pods on its new nodes are all the company its affinity asks for
	choices  []*item // the domains its pods can be dealt to

	soft        []*softRule // what need not hold
	softCounted []*counter  // counters of soft rules its pods add to
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
	stage     int8 // how far the term came that detail is about
}

// compile groups the pods and matches every class with every pool.
func (s *solver) compile() {
	for i, p := range s.in.View.Pools {
		s.pools = append(s.pools, preparePool(p, i, s.in.Known))
	}
	s.byClass = map[demandKey]*demand{}
	for _, p := range s.in.Pods {
		key := demandKey{p.Class, p.Priority}
		d := s.byClass[key]
		if d == nil {
			d = &demand{class: p.Class, priority: p.Priority}
			s.byClass[key] = d
			s.demands = append(s.demands, d)
		}
		d.pods = append(d.pods, p)
	}
	bars := s.barsByClass()
	type match struct {
		fits    []fit
		company bool
	}
	matches := map[*capacity.Class]match{}
	for _, d := range s.demands {
		slices.SortFunc(d.pods, func(a, b *capacity.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
		m, ok := matches[d.class]
		if !ok {
			m.fits = s.matchPools(d.class, bars[d.class])
			m.company = s.amongDaemons(d.class, m.fits)
			matches[d.class] = m
		}
		d.pools, d.company = m.fits, m.company
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

// demandKey is what tells demands apart.
type demandKey struct {
	class    *capacity.Class
	priority int32
}

// bars are where a class must not go: whole pools, and instance types of pools, each with the reason, and nodes.
type bars struct {
	pools map[string]string
	types map[string]map[string]string
	nodes map[string]bool
}

func (s *solver) barsByClass() map[*capacity.Class]bars {
	out := map[*capacity.Class]bars{}
	for _, b := range s.in.Barred {
		v, ok := out[b.Class]
		if !ok {
			v = bars{pools: map[string]string{}, types: map[string]map[string]string{}, nodes: map[string]bool{}}
			out[b.Class] = v
		}
		switch {
		case b.Node != "":
			v.nodes[b.Node] = true
		case b.InstanceType == "":
			v.pools[b.Pool] = b.Reason
		case v.types[b.Pool] == nil:
			v.types[b.Pool] = map[string]string{b.InstanceType: b.Reason}
		default:
			v.types[b.Pool][b.InstanceType] = b.Reason
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
		out[i] = p.match(c, b.types[p.Name])
	}
	return out
}

// match checks a class against a pool in the order of the Reason constants. barred are instance types the class must not have.
func (q *pool) match(c *capacity.Class, barred map[string]string) fit {
	if c.Unsupported != "" {
		return fit{why: Incompatible, detail: c.Unsupported}
	}
	if t, ok := c.Tolerates(q.Taints); !ok {
		return fit{why: TaintNotToler, detail: fmt.Sprintf("taint %s is not tolerated", t.ToString())}
	}
	if q.Blocked != "" || q.Catalog == nil {
		return q.matchBlocked(c)
	}
	f := q.matchTerms(c)
	if !f.ok {
		return f
	}
	if f.wide.set.Empty() {
		return fit{why: NoOffering, detail: q.noOffering()}
	}
	set := f.wide.set
	for _, name := range slices.Sorted(maps.Keys(barred)) {
		if set = set.AndNot(q.Catalog.WithValue(corev1.LabelInstanceTypeStable, name)); set.Empty() {
			return fit{why: Refused, detail: barred[name]}
		}
	}
	set, why, detail := q.beside(c, set)
	if set.Empty() {
		return fit{why: why, detail: detail}
	}
	return q.sizedFit(f, set, c)
}

// sizedFit narrows a fit to the offerings of a set that hold a pod of the class.
func (q *pool) sizedFit(f fit, set capacity.Set, c *capacity.Class) fit {
	f.wide = q.intern(set)
	if f.mask = q.holding(f.wide, c.Requests); f.mask.set.Empty() {
		return fit{why: TooLarge, detail: q.tooLarge(f.wide.set, c.Requests)}
	}
	if q.minValues && !q.flexible(f.mask, c.Requests) {
		return fit{why: TooFew, detail: q.inflexible(f.mask)}
	}
	return f
}

// matchBlocked says whether a pool from which nothing can be bought now would do for the class otherwise: only then is it
// what the pod waits for.
func (q *pool) matchBlocked(c *capacity.Class) fit {
	defines := wellKnown
	if q.Catalog != nil {
		defines = q.Catalog.Defines
	}
	if q.Requirements != nil {
		out := fit{why: Incompatible}
		for _, term := range c.Terms {
			m := q.Requirements.Compatible(term, defines)
			if m == nil {
				out.ok = true
				break
			}
			out.further(m.Error(), stageOf(m))
		}
		if !out.ok {
			return out
		}
	}
	if q.Blocked != "" {
		return fit{why: PoolNotReady, detail: q.Blocked}
	}
	return fit{why: PoolNotReady, detail: "nothing is known about its instance types yet"}
}

// wellKnown reports whether the instance that is bought may define the label, as far as its key tells.
func wellKnown(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	return ok && slices.ContainsFunc([]string{"kubernetes.io", "k8s.io", "k8s.aws", "karpenter.sh"}, func(known string) bool {
		return domain == known || strings.HasSuffix(domain, "."+known)
	})
}

// How far a term of a class came with a pool: the one that came furthest is the one to name.
const (
	noLabel int8 = iota + 1
	noValue
	noType
)

func stageOf(m *capacity.Mismatch) int8 {
	if m.Offered.Key == "" {
		return noLabel
	}
	return noValue
}

// further notes why a term failed, unless another came as far.
func (f *fit) further(detail string, stage int8) {
	if stage > f.stage {
		f.detail, f.stage = detail, stage
	}
}

// matchTerms unites the offerings of all alternatives that need no choice of custom labels; only if there is none, the
// first alternative that does and has an offering is taken.
func (q *pool) matchTerms(c *capacity.Class) fit {
	key := placement(c.Terms)
	if f, ok := q.terms[key]; ok {
		return f
	}
	f, set := q.uniteTerms(c)
	if f.ok {
		f.wide = q.intern(set)
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
			out.further(m.Error(), stageOf(m))
			continue
		}
		custom, m := q.custom(term)
		if m != nil {
			out.further(m.Error(), noValue)
			continue
		}
		mask := q.Catalog.Match(q.Requirements.And(term))
		if mask.Empty() {
			out.further(fmt.Sprintf("no instance type satisfies %s together with the pool's requirements", term), noType)
			continue
		}
		mask = mask.And(q.open)
		switch {
		case len(custom) > 0:
			if !narrowed.ok || (some.Empty() && !mask.Empty()) {
				narrowed, some = fit{ok: true, custom: custom}, mask
			}
		case out.ok:
			all = all.Or(mask)
		default:
			out.ok, all = true, mask
		}
	}
	if narrowed.ok && (!out.ok || (all.Empty() && !some.Empty())) {
		return narrowed, some
	}
	return out, all
}

// custom returns the part of a term that narrows labels the pool leaves open. A node needs one value for each: there is a
// mismatch if none is left.
func (q *pool) custom(term capacity.Requirements) (capacity.Requirements, *capacity.Mismatch) {
	var out capacity.Requirements
	for _, key := range term.Keys() {
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
		out[key] = have.Intersect(term[key])
		if !hasValue(out[key]) {
			return nil, &capacity.Mismatch{Key: key, Wanted: term[key], Offered: have}
		}
	}
	return out, nil
}

// hasValue reports whether a node can satisfy the requirement, with a value or without the label.
func hasValue(r capacity.Requirement) bool {
	_, ok := r.Any()
	return ok || r.AllowsAbsent()
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
