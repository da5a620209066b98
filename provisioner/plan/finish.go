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
	out := Launch{Pool: p.Pool, Requests: b.used, Pods: b.pods, Steps: b.steps}
	demand := b.used.Sub(p.overhead[p.Catalog.TypeOf(b.chosen)])
	ok := p.product(p.holding(b.mask, demand), b.chosen)
	chosen := p.Catalog.Offerings[b.chosen].Type.Capacity
	var largest, least capacity.Resources
	var others []capacity.CatalogOffering
	for o := range ok.All {
		off := p.Catalog.Offerings[o]
		if len(others) == fallback*most {
			break
		}
		if len(out.Offerings) == most {
			if largest.Max(off.Type.Capacity).Equal(largest) && least.Fits(off.Type.Allocatable) {
				others = append(others, off)
			}
			continue
		}
		if extra := off.Type.Capacity.Max(chosen).Sub(chosen); !p.left.spare(extra) {
			continue
		}
		if len(out.Offerings) == 0 {
			least = off.Type.Allocatable
		}
		out.Offerings = append(out.Offerings, off)
		largest, least = largest.Max(off.Type.Capacity), least.Min(off.Type.Allocatable)
	}
	p.left.used = p.left.used.Add(largest.Max(chosen).Sub(chosen))
	out.Requirements = b.requirements(append(slices.Clip(out.Offerings), others...))
	return out
}

// fallback is how many offerings beyond those that were planned with a launch's requirements allow, as a multiple: where EC2
// is out of all the planned ones, the launch goes on to them instead of being planned again. They are neither larger nor
// smaller than the planned ones, so that limits and room hold whichever of them is bought.
const fallback = 2

// product narrows a set of offerings until it is everything the pool sells in its types × zones × capacity types: a
// NodeClaim can only say it that way, and a pod with alternatives ("spot in a, or on-demand in b") must not get the
// combination it did not ask for. The offering that was chosen stays in.
func (q *pool) product(set capacity.Set, chosen int) capacity.Set {
	off := q.Catalog.Offerings[chosen]
	for _, narrow := range []capacity.Requirement{
		{}, capacity.In(karpv1.CapacityTypeLabelKey, off.CapacityType), capacity.In(corev1.LabelTopologyZone, off.Zone), capacity.In(corev1.LabelInstanceTypeStable, off.Type.Name),
	} {
		if narrow.Key != "" {
			set = set.And(q.Catalog.WithValue(narrow.Key, narrow.Values()[0]))
		}
		all := q.Catalog.Product(set).And(q.open)
		if all.AndNot(set).Empty() {
			break
		}
	}
	return set
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

// requirements are the pool's, what pods chose of its open labels, and the offerings spelled out.
func (b *bin) requirements(offs []capacity.CatalogOffering) capacity.Requirements {
	var types, zones, capacityTypes []string
	for _, o := range offs {
		types = append(types, o.Type.Name)
		zones = append(zones, o.Zone)
		capacityTypes = append(capacityTypes, o.CapacityType)
	}
	return b.pool.Requirements.And(b.custom).With(
		capacity.In(corev1.LabelInstanceTypeStable, types...),
		capacity.In(corev1.LabelTopologyZone, zones...),
		capacity.In(karpv1.CapacityTypeLabelKey, capacityTypes...),
	)
}
