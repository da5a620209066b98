// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bound

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// Of states the input of a plan as a packing problem. Pods that no offering of any pool can hold are an error, and so is
// a view with nodes: room that is there already has no price.
func Of(in plan.Input) (Problem, error) {
	if len(in.View.Nodes) > 0 {
		return Problem{}, errors.New("the view has nodes: a bound is on the price of a plan that starts from none")
	}
	t := &translation{pools: in.View.Pools, counts: map[*capacity.Class]int64{}, groups: map[string]int{}, kinds: map[string]int{}, items: map[string]int{}}
	for _, p := range in.Pods {
		if t.counts[p.Class] == 0 {
			t.classes = append(t.classes, p.Class)
		}
		t.counts[p.Class]++
	}
	slices.SortFunc(t.classes, func(a, b *capacity.Class) int { return strings.Compare(a.ID, b.ID) })
	t.resources()
	for _, c := range t.classes {
		if err := t.class(c); err != nil {
			return Problem{}, err
		}
	}
	t.shapes()
	return t.out, nil
}

// translation is the state of Of.
type translation struct {
	pools   []*capacity.Pool
	classes []*capacity.Class
	counts  map[*capacity.Class]int64
	names   []corev1.ResourceName
	groups  map[string]int
	kinds   map[string]int
	sets    [][]capacity.Set // kind → pool → offerings that will do
	items   map[string]int
	out     Problem
}

// resources lists what anybody asks for.
func (t *translation) resources() {
	t.names = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods}
	add := func(name corev1.ResourceName) {
		if !slices.Contains(t.names, name) {
			t.names = append(t.names, name)
		}
	}
	for _, c := range t.classes {
		if c.Requests.Ephemeral > 0 {
			add(corev1.ResourceEphemeralStorage)
		}
		for _, q := range c.Requests.Extended {
			add(q.Name)
		}
	}
}

func (t *translation) vector(r capacity.Resources) []int64 {
	out := make([]int64, len(t.names))
	for i, name := range t.names {
		out[i] = r.Get(name)
	}
	return out
}

// class adds the pods of a class: as one item, or, if the class spreads over zones, as one item a zone for those the zone
// must have and one for the rest.
func (t *translation) class(c *capacity.Class) error {
	sets, some := make([]capacity.Set, len(t.pools)), false
	for i, p := range t.pools {
		sets[i] = offerings(p, c)
		some = some || !sets[i].Empty()
	}
	if !some {
		return fmt.Errorf("no offering of any pool can hold a pod of class %q (%s)", c.ID, c.Requests)
	}
	rest := t.counts[c]
	for zone, n := range t.zoneShares(c, sets) {
		narrow := make([]capacity.Set, len(sets))
		for i, p := range t.pools {
			if narrow[i] = sets[i]; p.Catalog != nil {
				narrow[i] = sets[i].And(p.Catalog.WithValue(corev1.LabelTopologyZone, zone))
			}
		}
		t.add(c, n, narrow)
		rest -= n
	}
	t.add(c, rest, sets)
	return nil
}

// offerings are those of the pool the class may go to, as far as labels, taints and size are concerned.
func offerings(p *capacity.Pool, c *capacity.Class) capacity.Set {
	if p.Blocked != "" || p.Catalog == nil {
		return nil
	}
	out := capacity.NewSet(len(p.Catalog.Offerings))
	if _, ok := c.Tolerates(p.Taints); !ok || c.Unsupported != "" {
		return out
	}
	for _, term := range c.Terms {
		if p.Requirements.Compatible(term, p.Catalog.Defines) == nil {
			out = out.Or(p.Catalog.Match(p.Requirements.And(term)))
		}
	}
	if p.Available != nil {
		out = out.And(p.Available)
	}
	for i := range out.All {
		if !c.Requests.Add(p.Overhead(p.Catalog.Offerings[i].Type, nil)).Fits(p.Catalog.Offerings[i].Type.Allocatable) {
			out.Remove(i)
		}
	}
	return out
}

// zoneShares is how many pods of a class each zone holds at the least, whatever the plan.
func (t *translation) zoneShares(c *capacity.Class, sets []capacity.Set) map[string]int64 {
	out := map[string]int64{}
	for _, s := range c.Spread {
		if s.Key != corev1.LabelTopologyZone || !s.Matches(c.Namespace, c) || t.countsOthers(s, c) {
			continue
		}
		var zones []string
		for i, p := range t.pools {
			if p.Catalog != nil && p.Blocked == "" {
				zones = append(zones, p.Catalog.Values(s.Key, sets[i])...)
			}
		}
		slices.Sort(zones)
		zones = slices.Compact(zones)
		n, z, k := t.counts[c], int64(len(zones)), int64(s.MaxSkew)
		if least := n - (z-1)*k; least > 0 && len(zones) >= s.MinDomains {
			for _, zone := range zones {
				out[zone] = max(out[zone], (least+z-1)/z)
			}
		}
	}
	return out
}

// countsOthers reports whether the spread counts pods of another class too.
func (t *translation) countsOthers(s capacity.Spread, c *capacity.Class) bool {
	return slices.ContainsFunc(t.classes, func(o *capacity.Class) bool { return o != c && s.Matches(c.Namespace, o) })
}

// add adds n pods of the class that may go to the given offerings, together with equal ones of other classes.
func (t *translation) add(c *capacity.Class, n int64, sets []capacity.Set) {
	if n == 0 {
		return
	}
	kind := t.kind(sets)
	groups := t.groupsOf(c)
	key := fmt.Sprintf("%d %v %s", kind, groups, c.Requests)
	i, ok := t.items[key]
	if !ok {
		i = len(t.out.Items)
		t.items[key] = i
		t.out.Items = append(t.out.Items, Item{Size: t.vector(c.Requests), Kind: kind, Groups: groups})
	}
	t.out.Items[i].Count += n
}

func (t *translation) kind(sets []capacity.Set) int {
	var raw []byte
	for _, s := range sets {
		raw = append(raw, '|')
		for _, w := range s {
			raw = binary.LittleEndian.AppendUint64(raw, w)
		}
	}
	k, ok := t.kinds[string(raw)]
	if !ok {
		k = len(t.sets)
		t.kinds[string(raw)] = k
		t.sets = append(t.sets, sets)
	}
	return k
}

// groupsOf are the caps a node keeps on pods of the class.
func (t *translation) groupsOf(c *capacity.Class) []int {
	var out []int
	join := func(id string, most int64) {
		g, ok := t.groups[id]
		if !ok {
			g = len(t.out.Caps)
			t.groups[id] = g
			t.out.Caps = append(t.out.Caps, most)
		}
		if !slices.Contains(out, g) {
			out = append(out, g)
		}
	}
	for _, a := range c.AntiAffinity {
		if a.Key == corev1.LabelHostname && a.Matches(c) {
			join("apart "+a.ID, 1)
		}
	}
	for _, s := range c.Spread {
		if s.Key == corev1.LabelHostname && s.Matches(c.Namespace, c) {
			join(fmt.Sprintf("spread %s %s %d", c.Namespace, s.Selector, s.MaxSkew), int64(s.MaxSkew))
		}
	}
	for _, h := range c.HostPorts {
		join(fmt.Sprintf("port %s %d %s", h.Protocol, h.Port, h.IP), 1)
	}
	slices.Sort(out)
	return out
}

// shapes lists the cheapest offering of every type for every set of kinds it can hold.
func (t *translation) shapes() {
	for i, p := range t.pools {
		if p.Blocked != "" || p.Catalog == nil {
			continue
		}
		seen := map[string]bool{}
		for o, off := range p.Catalog.Offerings { // by price
			takes, some := capacity.NewSet(len(t.sets)), false
			for k, sets := range t.sets {
				if sets[i].Has(o) {
					takes.Add(k)
					some = true
				}
			}
			key := fmt.Sprint(off.Type.Name, takes)
			if !some || seen[key] {
				continue
			}
			seen[key] = true
			room := t.vector(off.Type.Allocatable.Sub(p.Overhead(off.Type, nil)))
			t.out.Shapes = append(t.out.Shapes, Shape{Name: p.Name + "/" + off.Type.Name + "/" + off.CapacityType, Price: off.Price, Room: room, Takes: takes})
		}
	}
}
