// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/binary"
	"strconv"
	"strings"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// pool is a capacity.Pool prepared for one Solve.
type pool struct {
	*capacity.Pool
	*derived

	index     int
	left      limit
	minValues bool // a requirement has a floor on how many values stay possible

	// What is derived from sets of offerings is derived once.
	masks  map[string]*mask
	terms  map[string]fit
	sized  map[sizedKey]*mask
	spots  map[spotKey]*mask
	values map[spotKey][]string
	// daemonsAt are the offerings on whose nodes each daemonset may run, as far as that was asked.
	daemonsAt map[*capacity.Class]capacity.Set
	// preferences are the offerings whose nodes meet preferred terms, by what they spell.
	preferences map[string]capacity.Set
	// sales are offerings spelled out, by their numbers.
	sales map[string][3]capacity.Requirement
}

// derived is what follows from the pool alone. It is not changed once it is made.
type derived struct {
	open capacity.Set // offerings the pool may buy now
	*rooms
}

// rooms are what nodes have, by type. Pools that differ in other things share them.
type rooms struct {
	free     []capacity.Resources // allocatable without the daemonset pods
	overhead []capacity.Resources // the daemonset pods
	largest  capacity.Resources   // the most any type has of each resource
	most     capacity.Resources   // the same beside the daemonset pods
}

// mask is a set of offerings of one pool. Equal sets of a pool are one mask.
type mask struct {
	id  int
	set capacity.Set
	// wide is the mask this one was made from by leaving out what is too small; itself for others.
	wide *mask
	// cheapest are the cheapest offerings of each type and capacity type in the set, by price; filled when asked for.
	cheapest []int
	known    bool
	kinds    int  // how many capacity types are in it; 0 not looked at
	product  int8 // whether NodeClaim requirements can say it: 0 not looked at, 1 yes, -1 no
}

type sizedKey struct {
	mask int
	size resourceKey
}

type spotKey struct {
	mask int
	spot string
}

// resourceKey is a resource vector that can be compared.
type resourceKey struct {
	cpu, memory, ephemeral, pods int64
	extended                     string
}

func keyOf(r capacity.Resources) resourceKey {
	k := resourceKey{cpu: r.CPU, memory: r.Memory, ephemeral: r.Ephemeral, pods: r.Pods}
	if len(r.Extended)+len(r.Volumes) > 0 {
		var b strings.Builder
		for _, list := range [...][]capacity.Quantity{r.Extended, r.Volumes} {
			for _, q := range list {
				b.WriteString(string(q.Name) + "=" + strconv.FormatInt(q.Value, 10) + ";")
			}
			b.WriteByte('/')
		}
		k.extended = b.String()
	}
	return k
}

func preparePool(p *capacity.Pool, index int, known *Memo) *pool {
	q := &pool{
		Pool: p, derived: known.of(p), index: index, left: limitOf(p), masks: map[string]*mask{}, terms: map[string]fit{},
		sized: map[sizedKey]*mask{}, spots: map[spotKey]*mask{}, values: map[spotKey][]string{}, daemonsAt: map[*capacity.Class]capacity.Set{}, preferences: map[string]capacity.Set{}, sales: map[string][3]capacity.Requirement{},
	}
	q.minValues = p.Blocked == "" && p.Catalog != nil && q.picky()
	return q
}

func derive(p *capacity.Pool) *derived {
	d := &derived{rooms: &rooms{}}
	if p.Blocked != "" || p.Catalog == nil {
		return d
	}
	d.open = p.Catalog.Match(p.Requirements)
	if p.Available != nil {
		d.open = d.open.And(p.Available)
	}
	d.rooms = roomsOf(p)
	return d
}

// roomsOf computes what the daemonset pods take of each type. A daemonset whose terms name no label that differs
// between types takes the same everywhere, which is nearly all of them.
func roomsOf(p *capacity.Pool) *rooms {
	n := len(p.Catalog.Types)
	r := &rooms{free: make([]capacity.Resources, n), overhead: make([]capacity.Resources, n)}
	var same capacity.Resources
	var differ []*capacity.Class
	for _, d := range p.Daemons {
		if uniform(p, d) {
			if p.Runs(d, p.Catalog.Types[0], nil) {
				same = same.Add(d.Requests)
			}
			continue
		}
		differ = append(differ, d)
	}
	for i, t := range p.Catalog.Types {
		over := same
		for _, d := range differ {
			if p.Runs(d, t, nil) {
				over = over.Add(d.Requests)
			}
		}
		r.overhead[i], r.largest = over, r.largest.Max(t.Capacity)
		r.free[i] = t.Allocatable.Sub(over)
		r.most = r.most.Max(r.free[i])
	}
	return r
}

func uniform(p *capacity.Pool, d *capacity.Class) bool {
	if len(p.Catalog.Types) == 0 {
		return false
	}
	for _, term := range d.Terms {
		for key := range term {
			if p.Catalog.Defines(key) {
				return false
			}
		}
	}
	return true
}

// intern returns the mask of a set.
func (q *pool) intern(set capacity.Set) *mask {
	raw := make([]byte, 0, 8*len(set))
	for _, w := range set {
		raw = binary.LittleEndian.AppendUint64(raw, w)
	}
	m := q.masks[string(raw)]
	if m == nil {
		m = &mask{id: len(q.masks), set: set}
		m.wide = m
		q.masks[string(raw)] = m
	}
	return m
}

// best are the cheapest offerings of each type and capacity type in the mask, by price.
func (q *pool) best(m *mask) []int {
	if !m.known {
		m.cheapest, m.known = q.Catalog.Cheapest(m.set), true
	}
	return m.cheapest
}

// kindsIn is how many capacity types the offerings of a mask have.
func (q *pool) kindsIn(m *mask) int {
	if m.kinds == 0 {
		m.kinds = len(q.valuesIn(karpv1.CapacityTypeLabelKey, m))
	}
	return m.kinds
}

// holding returns the offerings of a mask whose type has room for r beside its daemonset pods.
func (q *pool) holding(m *mask, r capacity.Resources) *mask {
	key := sizedKey{mask: m.id, size: keyOf(r)}
	if out := q.sized[key]; out != nil {
		return out
	}
	out := q.intern(q.roomy(m.set, r))
	if out != m && out.wide == out {
		out.wide = m
	}
	q.sized[key] = out
	return out
}

// roomy returns the offerings of a set whose type has room for r beside its daemonset pods.
func (q *pool) roomy(set capacity.Set, r capacity.Resources) capacity.Set {
	fits := make([]int8, len(q.free)) // 0 unknown, 1 yes, -1 no
	out := capacity.NewSet(len(q.Catalog.Offerings))
	for i := range set.All {
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

// at narrows a mask to domains of labels the catalogue defines.
func (q *pool) at(m *mask, p spot, key string) *mask {
	k := spotKey{mask: m.id, spot: key}
	if out := q.spots[k]; out != nil {
		return out
	}
	set := m.set
	for label, v := range p {
		switch {
		case !q.Catalog.Defines(label):
		case v == noDomain:
			set = set.And(q.Catalog.Lacking(label))
		default:
			set = set.And(q.Catalog.WithValue(label, v))
		}
	}
	out := q.intern(set)
	if m.wide != m && out.wide == out {
		out.wide = q.at(m.wide, p, key)
	}
	q.spots[k] = out
	return out
}

// valuesIn lists the values of a label key the catalogue defines over the offerings of a mask.
func (q *pool) valuesIn(key string, m *mask) []string {
	k := spotKey{mask: m.id, spot: key}
	out, ok := q.values[k]
	if !ok {
		out = q.Catalog.Values(key, m.set)
		q.values[k] = out
	}
	return out
}
