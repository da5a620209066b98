// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Label keys that are a property of an offering and not of an instance type.
const (
	// ZoneIDLabel is the AWS label with the zone's account-independent id, for instance use1-az1.
	ZoneIDLabel = "topology.k8s.aws/zone-id"
	// ReservationIDLabel names the capacity reservation an instance runs in.
	ReservationIDLabel = "karpenter.k8s.aws/capacity-reservation-id"
	// ReservationTypeLabel is the reservation's type: default or capacity-block.
	ReservationTypeLabel = "karpenter.k8s.aws/capacity-reservation-type"
	// ReservationInterruptibleLabel says whether its owner may take the reservation's instances back: true or false.
	ReservationInterruptibleLabel = "karpenter.k8s.aws/capacity-reservation-interruptible"
)

// InstanceType is one EC2 instance type as a node of one node class would be.
type InstanceType struct {
	Name string
	// Labels are the labels every node of the type has, apart from those an offering decides (zone, zone id, capacity
	// type, reservation). A well-known label the type does not have is listed in Absent.
	Labels map[string]string
	// Absent are well-known label keys a node of this type never has, for instance the GPU labels of a type without GPUs.
	Absent []string
	// Capacity is what the node reports as status.capacity; Allocatable what is left for pods, daemonsets included.
	Capacity    Resources
	Allocatable Resources
	// BootPods is the number of pods a booting node has to be told to take; 0 if its image comes to Capacity.Pods by itself.
	BootPods int32
	// PlacementGroup is the id of the placement group instances are launched into, empty for none.
	PlacementGroup string
	// Offerings are the ways to buy the type.
	Offerings []Offering
}

// Offering is one way to buy an instance type.
type Offering struct {
	Zone         string
	ZoneID       string
	CapacityType string // spot, on-demand or reserved
	// ReservationID is the capacity reservation, for capacity type reserved only; so are the two below.
	ReservationID string
	// ReservationType is default or capacity-block.
	ReservationType string
	// ReservationInterruptible says that the reservation's owner may take the instance back.
	ReservationInterruptible bool
	// Price in US dollars an hour.
	Price float64
}

// OfferingKey is the offering's identity for one instance type: what EC2 can be out of.
type OfferingKey struct {
	InstanceType string
	Zone         string
	CapacityType string
	// ReservationID is set for capacity type reserved only: each reservation runs out on its own.
	ReservationID string
	// PlacementGroup is set for launches into one: what a group has no room for is to be had outside of it.
	PlacementGroup string
}

// CatalogOffering is an offering together with its type, as a [Catalog] lists it.
type CatalogOffering struct {
	Type *InstanceType
	Offering
}

// Key returns what identifies the offering when EC2 reports a shortage.
func (o CatalogOffering) Key() OfferingKey {
	return OfferingKey{
		InstanceType: o.Type.Name, Zone: o.Zone, CapacityType: o.CapacityType, ReservationID: o.ReservationID, PlacementGroup: o.Type.PlacementGroup,
	}
}

// Catalog is everything that can be bought for one node class, indexed so that
// "which offerings satisfy these requirements" is a few bit operations. It is
// immutable and safe for concurrent use; shortages are sets beside it.
type Catalog struct {
	// Types are sorted by name.
	Types []*InstanceType
	// Offerings are sorted by price, then type, zone and capacity type.
	Offerings []CatalogOffering
	// Choices are labels whose value the launch chooses, whatever the type (tenancy, partition of a placement group), each with
	// the values there are to choose from. The catalogue does not define these keys; a pool takes them over as requirements.
	// nil if there are none. Set once, by whoever builds the catalogue.
	Choices Requirements

	typeIndex map[string]int
	ofType    []int // offering → index of its type in Types
	ofZone    []int // offering → index of its zone among zones
	ofKind    []int // offering → index of its capacity type among kinds
	zones     []string
	kinds     []string
	index     map[string]keyIndex
}

// keyIndex maps each value of one label key to the offerings that have it.
type keyIndex struct {
	values map[string]Set
	absent Set // offerings whose nodes lack the label
}

// NewCatalog indexes the given types. Types without offerings are dropped.
func NewCatalog(types []*InstanceType) *Catalog {
	c := &Catalog{typeIndex: make(map[string]int, len(types)), index: map[string]keyIndex{}}
	for _, t := range types {
		if len(t.Offerings) > 0 {
			c.Types = append(c.Types, t)
		}
	}
	slices.SortFunc(c.Types, func(a, b *InstanceType) int { return strings.Compare(a.Name, b.Name) })
	for i, t := range c.Types {
		c.typeIndex[t.Name] = i
		for _, o := range t.Offerings {
			c.Offerings = append(c.Offerings, CatalogOffering{Type: t, Offering: o})
		}
	}
	slices.SortFunc(c.Offerings, func(a, b CatalogOffering) int {
		return cmp.Or(cmp.Compare(a.Price, b.Price), strings.Compare(a.Type.Name, b.Type.Name), strings.Compare(a.Zone, b.Zone),
			strings.Compare(a.CapacityType, b.CapacityType), strings.Compare(a.ReservationID, b.ReservationID))
	})
	c.ofType, c.ofZone, c.ofKind = make([]int, len(c.Offerings)), make([]int, len(c.Offerings)), make([]int, len(c.Offerings))
	byType := make([][]int, len(c.Types))
	for i, o := range c.Offerings {
		t := c.typeIndex[o.Type.Name]
		c.ofType[i], byType[t] = t, append(byType[t], i)
		c.ofZone[i], c.ofKind[i] = position(&c.zones, o.Zone), position(&c.kinds, o.CapacityType)
		c.put(corev1.LabelTopologyZone, o.Zone, i)
		c.put(karpv1.CapacityTypeLabelKey, o.CapacityType, i)
		if o.ZoneID != "" {
			c.put(ZoneIDLabel, o.ZoneID, i)
		}
		if o.ReservationID != "" {
			c.put(ReservationIDLabel, o.ReservationID, i)
			c.put(ReservationTypeLabel, o.ReservationType, i)
			c.put(ReservationInterruptibleLabel, strconv.FormatBool(o.ReservationInterruptible), i)
		}
	}
	for t, typ := range c.Types {
		for k, v := range typ.Labels {
			c.put(k, v, byType[t]...)
		}
		for _, k := range typ.Absent {
			c.key(k)
		}
	}
	for _, k := range [...]string{ReservationIDLabel, ReservationTypeLabel, ReservationInterruptibleLabel} {
		c.key(k)
	}
	for k, ki := range c.index {
		ki.absent = FullSet(len(c.Offerings))
		for _, s := range ki.values {
			for i, w := range s {
				ki.absent[i] &^= w
			}
		}
		c.index[k] = ki
	}
	return c
}

// position is the index of s in the list, to which it is added if it is not there.
func position(list *[]string, s string) int {
	if i := slices.Index(*list, s); i >= 0 {
		return i
	}
	*list = append(*list, s)
	return len(*list) - 1
}

func (c *Catalog) key(k string) keyIndex {
	ki, ok := c.index[k]
	if !ok {
		ki = keyIndex{values: map[string]Set{}}
		c.index[k] = ki
	}
	return ki
}

// put adds offerings to those whose nodes have the label value.
func (c *Catalog) put(key, value string, offerings ...int) {
	ki := c.key(key)
	s, ok := ki.values[value]
	if !ok {
		s = NewSet(len(c.Offerings))
		ki.values[value] = s
	}
	for _, i := range offerings {
		s.Add(i)
	}
}

// Defines reports whether the key is a label the bought instance decides. All
// other keys are decided by the pool.
func (c *Catalog) Defines(key string) bool {
	_, ok := c.index[CanonicalKey(key)]
	return ok
}

// Match returns the offerings whose nodes satisfy all requirements on keys the
// catalogue defines; requirements on other keys are not looked at.
func (c *Catalog) Match(reqs Requirements) Set {
	out := FullSet(len(c.Offerings))
	var one Set // scratch
	for key, r := range reqs {
		ki, ok := c.index[key]
		if !ok {
			continue
		}
		if one == nil {
			one = NewSet(len(c.Offerings))
		}
		ki.match(r, one)
		for i := range out {
			out[i] &= one[i]
		}
	}
	return out
}

// match makes out the offerings whose nodes satisfy r.
func (ki keyIndex) match(r Requirement, out Set) {
	clear(out)
	add := func(s Set) {
		for i, w := range s {
			out[i] |= w
		}
	}
	if r.Finite() {
		for _, v := range r.Values() {
			add(ki.values[v])
		}
	} else {
		for v, s := range ki.values {
			if r.Has(v) {
				add(s)
			}
		}
	}
	if r.AllowsAbsent() {
		add(ki.absent)
	}
}

// Values returns the distinct values of a label key over the given offerings, sorted.
func (c *Catalog) Values(key string, in Set) []string {
	var out []string
	for v, s := range c.index[CanonicalKey(key)].values {
		if s.Intersects(in) {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out
}

// WithValue returns the offerings whose nodes have the label value.
func (c *Catalog) WithValue(key, value string) Set {
	if s, ok := c.index[CanonicalKey(key)].values[value]; ok {
		return s
	}
	return NewSet(len(c.Offerings))
}

// Lacking returns the offerings whose nodes do not have the label.
func (c *Catalog) Lacking(key string) Set {
	if ki, ok := c.index[CanonicalKey(key)]; ok {
		return ki.absent
	}
	return FullSet(len(c.Offerings))
}

// sells reports whether any offering's node satisfies q, a requirement on key.
func (c *Catalog) sells(key string, q Requirement) bool {
	ki := c.index[key]
	for v := range ki.values {
		if q.Has(v) {
			return true
		}
	}
	return q.AllowsAbsent() && (ki.values == nil || !ki.absent.Empty())
}

// TypeOf returns the index in Types of offering i's type.
func (c *Catalog) TypeOf(i int) int { return c.ofType[i] }

// Cheapest returns the offerings of a set that are the cheapest of their type and capacity type, by price.
func (c *Catalog) Cheapest(in Set) []int {
	seen := make([]bool, len(c.Types)*len(c.kinds))
	var out []int
	for i := range in.All {
		if k := c.ofType[i]*len(c.kinds) + c.ofKind[i]; !seen[k] {
			seen[k] = true
			out = append(out, i)
		}
	}
	return out
}

// Product returns every offering whose type, zone and capacity type each occur in the set: what requirements on those
// three labels can say of it.
func (c *Catalog) Product(in Set) Set {
	types, zones, kinds := make([]bool, len(c.Types)), make([]bool, len(c.zones)), make([]bool, len(c.kinds))
	for i := range in.All {
		types[c.ofType[i]], zones[c.ofZone[i]], kinds[c.ofKind[i]] = true, true, true
	}
	out := NewSet(len(c.Offerings))
	for i := range c.Offerings {
		if types[c.ofType[i]] && zones[c.ofZone[i]] && kinds[c.ofKind[i]] {
			out.Add(i)
		}
	}
	return out
}

// Type returns the instance type by name, nil if it is not sold.
func (c *Catalog) Type(name string) *InstanceType {
	if i, ok := c.typeIndex[name]; ok {
		return c.Types[i]
	}
	return nil
}

// Flexibility reports the first requirement (by key) whose MinValues the offerings of a set do not meet: on have distinct
// values of its label, of the want it asks for. ok is true if all are met.
func (c *Catalog) Flexibility(reqs Requirements, in Set) (key string, have, want int, ok bool) {
	for k, q := range reqs {
		if q.MinValues == 0 || (key != "" && k > key) {
			continue
		}
		n := 0
		for v, s := range c.index[k].values {
			if q.Has(v) && s.Intersects(in) {
				n++
			}
		}
		if n < q.MinValues {
			key, have, want = k, n, q.MinValues
		}
	}
	return key, have, want, key == ""
}

// Without returns the set of offerings whose key drop reports true for, taken out of all offerings.
func (c *Catalog) Without(drop func(OfferingKey) bool) Set {
	s := FullSet(len(c.Offerings))
	for i, o := range c.Offerings {
		if drop(o.Key()) {
			s.Remove(i)
		}
	}
	return s
}
