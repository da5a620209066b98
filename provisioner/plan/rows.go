// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// piece is something to be packed, many times over: pods that are one size to the packing.
type piece struct {
	index int
	size  []float64 // by dimension of the packer
	set   int       // which offerings will do, see packer.sets
	value float64   // worth of one pod in US dollars an hour
	left  int
	// What else bounds how many share a node.
	groups []group
	hosts  *hostRules
	ports  []capacity.HostPort
	custom int     // pods with different non-zero numbers want different labels of one node
	wish   int     // which wish its pods have, 0 for none
	base   float64 // what the room of one pod costs at least, in US dollars an hour; for pods with a wish

	worth, weight, density float64 // scratch of a filling: worth is the value on its shape
}

// group is a set of pieces of which a node takes only so many.
type group struct{ id, most int }

// row is all items that are one to the packing: same request, same offerings, same rules about hosts.
type row struct {
	piece
	request capacity.Resources
	wide    string // equal texts are equal offerings, those too small for a pod included
	items   []*item
	next    int // where to look for an item that gives a pod
}

type rowKey struct {
	size   resourceKey
	set    int
	hosts  int
	ports  string
	custom string
	wish   int
}

// makeRows groups the items that one of the pools can serve, largest first.
func (k *packer) makeRows(items []*item) {
	byKey := map[rowKey]*row{}
	sets, customs := map[string]int{}, map[string]int{"": 0}
	for _, it := range items {
		if it.left == 0 || !it.served(k.from, k.to) {
			continue
		}
		c := it.d.class
		key := rowKey{size: keyOf(c.Requests), set: k.setOf(it, sets), hosts: it.d.hostSig, custom: it.customKey, wish: k.wishOf(c)}
		if len(c.HostPorts) > 0 {
			key.ports = fmt.Sprint(c.HostPorts)
		}
		r := byKey[key]
		if r == nil {
			if _, ok := customs[key.custom]; !ok {
				customs[key.custom] = len(customs)
			}
			r = &row{request: c.Requests, wide: k.wideOf(it), piece: piece{set: key.set, ports: c.HostPorts, custom: customs[key.custom], wish: key.wish}}
			if h := &it.d.hosts; len(h.rules)+len(h.counted) > 0 {
				r.hosts = h
			}
			byKey[key] = r
			r.index = len(k.rows)
			k.rows = append(k.rows, r)
		}
		it.row = r
		r.items = append(r.items, it)
		r.left += it.left
	}
	k.measure()
}

// served reports whether any of the pools can serve the item.
func (it *item) served(from, to int) bool {
	return slices.ContainsFunc(it.masks[from:to], func(m *mask) bool { return m != nil })
}

// setOf numbers the combinations of masks the items have.
func (k *packer) setOf(it *item, known map[string]int) int {
	raw := make([]byte, 0, 32)
	for _, m := range it.masks[k.from:k.to] {
		id := -1
		if m != nil {
			id = m.id
		}
		raw = strconv.AppendInt(raw, int64(id), 10)
		raw = append(raw, ',')
	}
	n, ok := known[string(raw)]
	if !ok {
		n = len(k.sets)
		known[string(raw)] = n
		k.sets = append(k.sets, it.masks)
	}
	return n
}

// wideOf spells out which offerings will do for an item, those too small for one of its pods included.
func (k *packer) wideOf(it *item) string {
	raw := make([]byte, 0, 16)
	for _, m := range it.masks[k.from:k.to] {
		if m != nil {
			raw = strconv.AppendInt(raw, int64(m.wide.id), 10)
		}
		raw = append(raw, ',')
	}
	return string(raw)
}

// measure finds the resources anything asks for and the rows' sizes in them. CPU and memory always come first.
func (k *packer) measure() {
	k.dims = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
	add := func(n corev1.ResourceName) {
		if !slices.Contains(k.dims, n) {
			k.dims = append(k.dims, n)
		}
	}
	for _, r := range k.rows {
		if r.request.Pods > 0 {
			add(corev1.ResourcePods)
		}
		if r.request.Ephemeral > 0 {
			add(corev1.ResourceEphemeralStorage)
		}
		for _, q := range r.request.Extended {
			add(q.Name)
		}
		for _, q := range r.request.Volumes {
			if driver := string(q.Name); !slices.Contains(k.drivers, driver) {
				k.drivers = append(k.drivers, driver)
			}
		}
	}
	slices.Sort(k.dims[2:])
	slices.Sort(k.drivers)
	for _, r := range k.rows {
		r.size = k.vector(r.request, 0)
	}
}

// vector is the resources in the packer's dimensions: first those of dims, then volumes by driver. unbounded stands for a
// driver without a limit.
func (k *packer) vector(r capacity.Resources, unbounded float64) []float64 {
	out := make([]float64, 0, len(k.dims)+len(k.drivers))
	for _, n := range k.dims {
		out = append(out, float64(max(r.Get(n), 0)))
	}
	for _, d := range k.drivers {
		n, ok := r.VolumeLimit(d)
		if !ok {
			out = append(out, unbounded)
			continue
		}
		out = append(out, float64(max(n, 0)))
	}
	return out
}

// lot is the rows that are one row of the linear program: all of one size, or of nearly one size if there are too many.
type lot struct {
	piece
	rows    []*row
	largest int // the largest of them, whose offerings are the lot's
	exact   bool
}

// Bounds on the rows of the linear program, whose cost grows with their square.
const (
	exactLots = 120 // as long as every size is a row of its own
	maxLots   = 120 // where sizes have to be put together
	fewLots   = 48  // where there are few pods besides
)

// makeLots groups the rows that still have pods into lots: exact sizes if there are few enough, else sizes
// within growing factors of each other.
func (k *packer) makeLots() []*lot {
	pods := 0
	for _, r := range k.rows {
		pods += r.left
	}
	for _, step := range []float64{0, 1.12, 1.25, 1.5, 2, 4, 16, 1e3, 1e12} {
		most := exactLots
		if step > 0 {
			most = min(fewLots+pods/200, maxLots)
		}
		if lots := k.lotsOf(step, most); len(lots) <= most {
			return lots
		}
	}
	return nil
}

func (k *packer) lotsOf(step float64, most int) []*lot {
	byKey := map[string]*lot{}
	var out []*lot
	for _, r := range k.rows {
		if r.left == 0 || r.clings() {
			continue
		}
		groups := k.groupsOf(r)
		key := fmt.Sprint(r.wide, r.custom, r.wish, groups, gridded(r.size, step))
		l := byKey[key]
		if l == nil {
			if len(out) == most {
				return make([]*lot, most+1)
			}
			l = &lot{exact: step == 0, largest: r.index, piece: piece{size: make([]float64, len(r.size)), set: r.set, custom: r.custom, wish: r.wish, groups: groups}}
			byKey[key] = l
			l.index = len(out)
			out = append(out, l)
		}
		if k.bulk(r.size) > k.bulk(k.rows[l.largest].size) {
			l.largest, l.set = r.index, r.set
		}
		l.rows = append(l.rows, r)
		l.left += r.left
		l.base += r.base * float64(r.left)
		for d, v := range r.size {
			l.size[d] += v * float64(r.left)
		}
	}
	for _, l := range out {
		l.base /= float64(l.left)
		for d := range l.size {
			l.size[d] /= float64(l.left)
		}
		slices.SortStableFunc(l.rows, func(a, b *row) int { return cmp.Compare(b.value, a.value) })
	}
	return out
}

func (r *row) clings() bool { return r.near() != nil }

// gridded rounds sizes to a grid of factors; a step of 0 keeps them.
func gridded(size []float64, step float64) string {
	var b strings.Builder
	for _, v := range size {
		if step > 0 && v > 0 {
			v = logFloor(v, step)
		}
		b.WriteString(strconv.FormatFloat(v, 'g', -1, 64) + ",")
	}
	return b.String()
}

// groupsOf are the row's rules about hosts that are about its own pods, and its host ports.
func (k *packer) groupsOf(r *row) []group {
	var out []group
	for _, p := range r.ports {
		out = append(out, group{id: -1 - int(p.Port), most: 1})
	}
	if r.hosts == nil {
		return out
	}
	for _, q := range r.hosts.rules {
		if !q.self {
			continue
		}
		switch q.kind {
		case anti:
			out = append(out, group{id: q.counter.id, most: 1})
		case spread:
			out = append(out, group{id: q.counter.id, most: q.maxSkew})
		case affinity:
		}
	}
	slices.SortFunc(out, func(a, b group) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.most, b.most)) })
	return slices.Compact(out)
}
