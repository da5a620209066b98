// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

const (
	// maxTypes is how many instance types the first request of a launch carries, each in all its zones, as Karpenter's: the
	// allocation by price and capacity is the better for every pool it may choose from. moreTypes is for requests after EC2 was
	// out of what an attempt asked for: the deep pools have been tried.
	maxTypes  = 60
	moreTypes = 300
	// maxOverrides is how many offerings one request carries at most. EC2 has that limit for fleets of other types than instant;
	// for those it limits the size of the request, which 60 types in six zones are within and 100 types are not
	// (aws/karpenter-provider-aws issue 5776).
	maxOverrides = 300
)

// wanted is what a claim asks of its instance.
type wanted struct {
	requirements capacity.Requirements
	requests     capacity.Resources
	minValues    bool
}

// wantedBy reads a claim. A requirement that cannot be understood is an error of kind Invalid.
func wantedBy(c *karpv1.NodeClaim) (wanted, error) {
	w := wanted{requirements: capacity.Requirements{}, requests: capacity.FromList(c.Spec.Resources.Requests)}
	for _, s := range c.Spec.Requirements {
		q, err := capacity.NewRequirement(s.Key, s.Operator, s.Values...)
		if err != nil {
			return wanted{}, &capacity.Error{Kind: capacity.Invalid, Err: fmt.Errorf("reading NodeClaim %q: %w", c.Name, err)}
		}
		if s.MinValues != nil {
			q.MinValues, w.minValues = *s.MinValues, true
		}
		w.requirements = w.requirements.With(q)
	}
	return w, nil
}

// choose returns the offerings to ask EC2 for, cheapest first and all of one capacity type: reserved before spot before
// on-demand, spot without what is dearer than the cheapest on-demand; a reservation alone, because its places are counted.
// most bounds the instance types of the answer, maxOverrides the answer, and out says which offerings are not to be had. The
// error, of kind NoCapacity, says which condition left nothing over.
func choose(cat *capacity.Catalog, w wanted, most int, out func(capacity.OfferingKey) bool) ([]capacity.CatalogOffering, error) {
	match := cat.Match(w.requirements)
	available := collect(cat, match, w, most, out)
	if len(available) == 0 {
		return nil, whyNone(cat, match, w)
	}
	return limit(oneCapacityType(available, w.minValues), w, most)
}

// whyNone explains that nothing is to be had.
func whyNone(cat *capacity.Catalog, match capacity.Set, w wanted) error {
	fitting := 0
	for i := range match.All {
		if w.requests.Fits(cat.Offerings[i].Type.Allocatable) {
			fitting++
		}
	}
	switch {
	case match.Empty():
		return noCapacity("no instance type satisfies the requirements %s", w.requirements)
	case fitting == 0:
		return noCapacity("none of %d matching offerings holds %s", match.Len(), w.requests)
	}
	return noCapacity("EC2 is out of all %d offerings that satisfy the claim", fitting)
}

func noCapacity(format string, args ...any) error {
	return &capacity.Error{Kind: capacity.NoCapacity, Err: fmt.Errorf(format, args...)}
}

// collect returns the matching offerings that hold the requests and are to be had, cheapest first, and stops when those that
// follow cannot matter any more. Bare metal and accelerated types are bought only when nothing else will do, unless minValues
// asks for variety.
func collect(cat *capacity.Catalog, match capacity.Set, w wanted, most int, out func(capacity.OfferingKey) bool) []capacity.CatalogOffering {
	fits := make(map[int]bool, 64)
	b := breadth{most: most, types: map[string]map[int]bool{}}
	var plain, special []capacity.CatalogOffering
	for i := range match.All {
		t, o := cat.TypeOf(i), cat.Offerings[i]
		if !w.minValues && b.full(o.CapacityType, t) {
			continue
		}
		ok, seen := fits[t]
		if !seen {
			ok = w.requests.Fits(cat.Types[t].Allocatable)
			fits[t] = ok
		}
		switch {
		case !ok || out(o.Key()):
		case !w.minValues && exotic(o.Type):
			if len(plain) == 0 {
				special = append(special, o)
			}
		default:
			plain = append(plain, o)
			b.add(o.CapacityType, t)
			if !w.minValues && b.enough() {
				return plain
			}
		}
	}
	if len(plain) > 0 {
		return plain
	}
	return special
}

// breadth counts what was collected: for each capacity type the instance types, and the offerings.
type breadth struct {
	most  int
	types map[string]map[int]bool
	total int
}

func (b *breadth) add(capacityType string, t int) {
	if b.types[capacityType] == nil {
		b.types[capacityType] = map[int]bool{}
	}
	b.types[capacityType][t] = true
	b.total++
}

// full reports whether there are as many instance types as a request carries, and this one is not among them.
func (b *breadth) full(capacityType string, t int) bool {
	have := b.types[capacityType]
	return len(have) >= b.most && !have[t]
}

// enough reports whether offerings dearer than those counted cannot be chosen: spot and an on-demand offering that all further
// spot is dearer than, or a request's fill. (On demand without any cheaper spot goes on for the other zones of its types.)
func (b *breadth) enough() bool {
	if len(b.types[karpv1.CapacityTypeReserved]) > 0 {
		return false
	}
	spot, onDemand := len(b.types[karpv1.CapacityTypeSpot]), len(b.types[karpv1.CapacityTypeOnDemand])
	return spot > 0 && onDemand > 0 || b.total >= maxOverrides
}

func exotic(t *capacity.InstanceType) bool {
	if strings.Contains(t.Name, ".metal") {
		return true
	}
	for _, name := range []corev1.ResourceName{v1.ResourceNVIDIAGPU, v1.ResourceAMDGPU, v1.ResourceAWSNeuron, v1.ResourceAWSNeuronCore, v1.ResourceHabanaGaudi} {
		if t.Capacity.Get(name) > 0 {
			return true
		}
	}
	return false
}

// oneCapacityType keeps one capacity type. in is sorted by price.
func oneCapacityType(in []capacity.CatalogOffering, minValues bool) []capacity.CatalogOffering {
	byType := map[string][]capacity.CatalogOffering{}
	for _, o := range in {
		byType[o.CapacityType] = append(byType[o.CapacityType], o)
	}
	// A single reservation has no variety: where minValues asks for some, it is for pools that allow nothing else.
	if reserved := byType[karpv1.CapacityTypeReserved]; len(reserved) > 0 && (!minValues || len(byType) == 1) {
		return reserved[:1]
	}
	spot, onDemand := byType[karpv1.CapacityTypeSpot], byType[karpv1.CapacityTypeOnDemand]
	if len(onDemand) > 0 && !minValues {
		n := 0
		for n < len(spot) && spot[n].Price <= onDemand[0].Price {
			n++
		}
		spot = spot[:n]
	}
	if len(spot) > 0 {
		return spot
	}
	return onDemand
}

// limit returns the offerings of the cheapest types, as many types as most allows or minValues needs.
func limit(in []capacity.CatalogOffering, w wanted, most int) ([]capacity.CatalogOffering, error) {
	for ; ; most++ {
		taken, all := cut(in, most)
		if !w.minValues {
			return taken, nil
		}
		short := shortOfValues(taken, w.requirements)
		if short == "" {
			return taken, nil
		}
		if all {
			return nil, noCapacity("the offerings to be had have fewer values of %q than minValues asks", short)
		}
	}
}

// cut returns the offerings of the first so many types, no more than a request carries; all says that more types would bring
// nothing more.
func cut(in []capacity.CatalogOffering, most int) (taken []capacity.CatalogOffering, all bool) {
	types := map[string]bool{}
	all = true
	for _, o := range in {
		switch {
		case !types[o.Type.Name] && len(types) == most:
			all = false
			continue
		case len(taken) == maxOverrides:
			return taken, true
		}
		types[o.Type.Name] = true
		taken = append(taken, o)
	}
	return taken, all
}

// shortOfValues returns a key of which the offerings have fewer distinct values than its minValues, "" if there is none.
func shortOfValues(in []capacity.CatalogOffering, reqs capacity.Requirements) string {
	for _, key := range reqs.Keys() {
		q := reqs[key]
		if q.MinValues == 0 {
			continue
		}
		seen := map[string]bool{}
		for _, o := range in {
			if v, ok := valueOf(o, key); ok {
				seen[v] = true
			}
		}
		if len(seen) < q.MinValues {
			return key
		}
	}
	return ""
}

// valueOf returns the value a label would have on a node of the offering.
func valueOf(o capacity.CatalogOffering, key string) (string, bool) {
	switch key {
	case corev1.LabelTopologyZone:
		return o.Zone, true
	case karpv1.CapacityTypeLabelKey:
		return o.CapacityType, true
	case capacity.ZoneIDLabel:
		return o.ZoneID, o.ZoneID != ""
	}
	v, ok := o.Type.Labels[key]
	return v, ok
}
