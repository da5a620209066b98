// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Pool is a NodePool with its node class resolved: what may be bought, on what terms.
type Pool struct {
	Name string
	// Annotations are the NodePool's own, by which people move what the planner does with it.
	Annotations map[string]string
	// Evenness is how much dearer, in parts of its price, a node of the pool counts that could hold everything that is being
	// planned; nil for the planner's default. See EvennessAnnotation.
	Evenness *float64
	// Static says that the pool keeps a fixed number of nodes (spec.replicas) and is never bought into for pods; it is Blocked.
	Static bool
	// Weight orders pools: higher is tried first, before price is looked at. 0 if unset.
	Weight int32
	// ClassRef names the node class.
	ClassRef ClassRef
	// Blocked is why nothing can be bought from the pool now (class missing or not ready, invalid spec, being deleted);
	// empty if it can.
	Blocked string
	// Requirements are the pool's requirements and labels, the nodepool label included. A requirement on a key the
	// catalogue does not define lets a pod choose the label's value.
	Requirements Requirements
	Taints       []corev1.Taint
	// StartupTaints are on a new node until an agent takes them off; pods need not tolerate them.
	StartupTaints []corev1.Taint
	// Limits bounds the sum of node capacities, in the resources it names only. LimitNodes bounds their number. nil if unset.
	Limits     corev1.ResourceList
	LimitNodes *int64
	// LookAhead bounds the pods that are planned on the pool before they exist, at any time; nil for no bound. See
	// LookAheadAnnotation.
	LookAhead *int
	// Usage is the capacity of the pool's nodes, those on their way included, and Nodes their number.
	Usage Resources
	Nodes int64
	// Catalog is everything the pool's node class can buy, nil if the class is not ready; Available the offerings EC2 is
	// not known to be out of.
	Catalog   *Catalog
	Available Set
	// Reservations are how many more instances each capacity reservation of the catalogue takes, by ID, those launched into it
	// already subtracted; a reservation that is not listed is not counted. Pools may share reservations.
	Reservations map[string]int
	// Daemons are the daemonset pods a new node may get; which of them it does get depends on its labels and taints.
	Daemons []*Class
}

// ClassKind is the kind of the node classes Slipway launches for.
const ClassKind = "EC2NodeClass"

// ClassGroups are the API groups by which pools and claims name an EC2NodeClass: its own, and Slipway's, which a Karpenter that
// runs beside leaves alone.
func ClassGroups() []string { return []string{"karpenter.k8s.aws", "slipway.sh"} }

// Managed reports whether pools and claims with this reference are Slipway's to look after.
func Managed(ref *karpv1.NodeClassReference) bool {
	return ref != nil && ref.Kind == ClassKind && slices.Contains(ClassGroups(), ref.Group)
}

// ClassRef identifies a node class (EC2NodeClass).
type ClassRef struct {
	Group string
	Kind  string
	Name  string
}

// RunsOn returns the offerings on whose nodes the daemonset class may run: what its pods bind and select there matters to
// every pod beside them.
func (p *Pool) RunsOn(d *Class) Set {
	out := NewSet(len(p.Catalog.Offerings))
	if _, ok := d.Tolerates(p.Taints); !ok {
		return out
	}
	for _, term := range d.Terms {
		bought := Requirements{}
		open := true
		for key, q := range term {
			if p.Catalog.Defines(key) {
				bought[key] = q
				continue
			}
			open = open && p.possible(key, q)
		}
		if open {
			out = out.Or(p.Catalog.Match(bought))
		}
	}
	return out
}

// Overhead returns what the daemonset pods that would run on a node with these properties of the pool ask for.
// A daemonset counts if it tolerates the pool's taints (its controller adds tolerations for node conditions, so
// startup taints do not keep it away for good) and the node's labels can satisfy one of its terms.
func (p *Pool) Overhead(t *InstanceType, labels map[string]string) Resources {
	var sum Resources
	for _, d := range p.Daemons {
		if p.Runs(d, t, labels) {
			sum = sum.Add(d.Requests)
		}
	}
	return sum
}

// Runs reports whether the daemonset class d runs on a node of type t of the pool. labels are further labels of the
// node (zone, capacity type) that are known already. A daemonset that names its nodes runs on no new one.
func (p *Pool) Runs(d *Class, t *InstanceType, labels map[string]string) bool {
	if _, ok := d.Tolerates(p.Taints); !ok {
		return false
	}
	for _, term := range d.Terms {
		if p.satisfies(term, t, labels) {
			return true
		}
	}
	return false
}

func (p *Pool) satisfies(term Requirements, t *InstanceType, labels map[string]string) bool {
	for key, q := range term {
		v, ok := labelValue(t.Labels, key)
		if !ok {
			v, ok = labelValue(labels, key)
		}
		switch {
		case ok && !q.Has(v):
			return false
		case !ok && !p.possible(key, q):
			return false
		}
	}
	return true
}

// possible reports whether a node of which the label is not known yet may turn out to satisfy q. The instance type is
// known: a label that only it decides is absent.
func (p *Pool) possible(key string, q Requirement) bool {
	r := p.Requirements.Get(key)
	switch {
	case p.Catalog != nil && isOfferingKey(key):
		return p.Catalog.sells(key, q.Intersect(r))
	case p.Catalog != nil && p.Catalog.Defines(key):
		return q.AllowsAbsent()
	}
	if _, ok := p.Requirements[key]; !ok {
		return q.AllowsAbsent()
	}
	return r.Intersects(q) || (r.AllowsAbsent() && q.AllowsAbsent())
}

func isOfferingKey(key string) bool {
	switch key {
	case corev1.LabelTopologyZone, ZoneIDLabel, ReservationIDLabel, ReservationTypeLabel, ReservationInterruptibleLabel, karpv1.CapacityTypeLabelKey:
		return true
	}
	return false
}
