// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	corev1 "k8s.io/api/core/v1"
)

// Pool is a NodePool with its node class resolved: what may be bought, on what terms.
type Pool struct {
	Name string
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
	// Usage is the capacity of the pool's nodes, those on their way included, and Nodes their number.
	Usage Resources
	Nodes int64
	// Catalog is everything the pool's node class can buy, nil if the class is not ready; Available the offerings EC2 is
	// not known to be out of.
	Catalog   *Catalog
	Available Set
	// Daemons are the daemonset pods a new node may get; which of them it does get depends on its labels and taints.
	Daemons []*Class
}

// ClassRef identifies a node class (EC2NodeClass).
type ClassRef struct {
	Group string
	Kind  string
	Name  string
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
// node (zone, capacity type) that are known already.
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
		if v, ok := t.Labels[key]; ok {
			if !q.Has(v) {
				return false
			}
			continue
		}
		if v, ok := labels[key]; ok {
			if !q.Has(v) {
				return false
			}
			continue
		}
		if r, ok := p.Requirements[key]; ok {
			if !r.Intersects(q) && (!absentOK(r) || !absentOK(q)) {
				return false
			}
			continue
		}
		if p.Catalog != nil && p.Catalog.Defines(key) && len(p.Catalog.index[key].values) > 0 && isOfferingKey(key) {
			continue // decided by the offering: possible
		}
		if !absentOK(q) {
			return false
		}
	}
	return true
}

func isOfferingKey(key string) bool {
	switch key {
	case corev1.LabelTopologyZone, ZoneIDLabel, "karpenter.sh/capacity-type":
		return true
	}
	return false
}
