// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// converter makes capacity nodes of Nodes and NodeClaims.
type converter struct {
	b     *Builder
	pools poolSet
}

// foreign is a node that no claim stands for, without its pods.
func (cv *converter) foreign(n *corev1.Node) *capacity.Node {
	out := &capacity.Node{
		Name: n.Name, Phase: capacity.Usable, Labels: n.Labels, Taints: n.Spec.Taints,
		Capacity: capacity.FromList(n.Status.Capacity), Allocatable: capacity.FromList(n.Status.Allocatable),
	}
	if leaving(n) {
		out.Phase = capacity.Leaving
	}
	return out
}

// claim is a node Slipway (or Karpenter) bought, without its pods, and what all daemonset pods of it will ask for while some
// are to come; n is nil until it has joined.
func (cv *converter) claim(c *karpv1.NodeClaim, n *corev1.Node) (out *capacity.Node, daemons capacity.Resources) {
	out = &capacity.Node{Claim: c.Name, ClaimUID: c.UID, Pool: c.Labels[karpv1.NodePoolLabelKey], Phase: Phase(c, n)}
	cat := cv.pools.catalogs[c.Spec.NodeClassRef.Name]
	if n != nil && (out.Phase == capacity.Usable || out.Phase == capacity.Leaving) {
		out.Name, out.Labels, out.Taints = n.Name, n.Labels, n.Spec.Taints
		out.Capacity = expected(capacity.FromList(n.Status.Capacity), capacity.FromList(c.Status.Capacity))
		out.Allocatable = capacity.FromList(n.Status.Allocatable)
	} else {
		kinds := onItsWay(out, c, n, cat)
		if out.Phase != capacity.Leaving {
			daemons = cv.daemons(out, kinds)
		}
	}
	out.InstanceType, out.Zone = out.Labels[corev1.LabelInstanceTypeStable], out.Labels[corev1.LabelTopologyZone]
	out.CapacityType = out.Labels[karpv1.CapacityTypeLabelKey]
	if cat == nil {
		return out, daemons
	}
	out.Price = price(cat, out)
	if t := cat.Type(out.InstanceType); t != nil {
		out.Allocatable.Volumes = t.Allocatable.Volumes
	}
	return out, daemons
}

// onItsWay fills in a node that is not usable yet from what its claim promises and, once it has joined, from what it
// reports: a booting kubelet may still report zeros and lack labels. It returns the types the claim may become.
func onItsWay(out *capacity.Node, c *karpv1.NodeClaim, n *corev1.Node, cat *capacity.Catalog) []*capacity.InstanceType {
	out.Labels, out.Requirements, out.Taints = maps.Clone(c.Labels), capacity.Requirements{}, c.Spec.Taints
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	undecided(out, c)
	kinds := candidates(out, c, cat)
	switch {
	case n != nil:
		out.Name, out.Requirements = n.Name, nil
		maps.Copy(out.Labels, n.Labels)
		out.Capacity = expected(capacity.FromList(n.Status.Capacity), capacity.FromList(c.Status.Capacity))
		out.Allocatable = expected(capacity.FromList(n.Status.Allocatable), capacity.FromList(c.Status.Allocatable))
	case c.Status.ProviderID != "":
		out.Capacity, out.Allocatable = capacity.FromList(c.Status.Capacity), capacity.FromList(c.Status.Allocatable)
	default:
		planned(out, c, kinds)
	}
	return kinds
}

// undecided splits the claim's requirements into labels (one value left) and what is open.
func undecided(out *capacity.Node, c *karpv1.NodeClaim) {
	for _, r := range c.Spec.Requirements {
		q, err := capacity.NewRequirement(r.Key, r.Operator, r.Values...)
		if err != nil {
			continue // written by somebody else; the launcher reports it
		}
		if _, ok := out.Labels[q.Key]; ok {
			continue
		}
		out.Requirements = out.Requirements.With(q)
	}
	for key, q := range out.Requirements {
		if q.Finite() && len(q.Values()) == 1 {
			out.Labels[key] = q.Values()[0]
			delete(out.Requirements, key)
		}
	}
}

// candidates are the types the claim is or may become, none if its class's catalogue is not known. For a claim without an
// instance, what they and their offerings have in common becomes the node's labels, and what tells them apart its
// requirements.
func candidates(out *capacity.Node, c *karpv1.NodeClaim, cat *capacity.Catalog) []*capacity.InstanceType {
	if cat == nil {
		return nil
	}
	if c.Status.ProviderID != "" {
		if t := cat.Type(out.Labels[corev1.LabelInstanceTypeStable]); t != nil {
			return []*capacity.InstanceType{t}
		}
		return nil
	}
	var types []*capacity.InstanceType
	seen := map[*capacity.InstanceType]bool{}
	zones, capacityTypes := map[string]int{}, map[string]int{}
	values := map[string]map[string]int{corev1.LabelTopologyZone: zones, karpv1.CapacityTypeLabelKey: capacityTypes}
	wanted := capacity.FromList(c.Spec.Resources.Requests)
	for i := range cat.Match(out.Requirements.And(capacity.FromLabels(out.Labels))).All {
		o := &cat.Offerings[i]
		if !wanted.Fits(o.Type.Allocatable) {
			continue
		}
		zones[o.Zone]++
		capacityTypes[o.CapacityType]++
		if seen[o.Type] {
			continue
		}
		seen[o.Type] = true
		types = append(types, o.Type)
		for k, v := range o.Type.Labels {
			if values[k] == nil {
				values[k] = map[string]int{}
			}
			values[k][v]++
		}
	}
	decide(out, values, len(types))
	return types
}

// decide turns the values labels have on the n candidate types into labels and requirements. A label that some of them
// lack stays open.
func decide(out *capacity.Node, values map[string]map[string]int, n int) {
	for key, count := range values {
		if _, ok := out.Labels[key]; ok || n == 0 {
			continue
		}
		have := 0
		for _, k := range count {
			have += k
		}
		list := slices.Sorted(maps.Keys(count))
		switch {
		case have < n:
			out.Requirements[key] = out.Requirements.Get(key)
		case len(list) == 1:
			out.Labels[key] = list[0]
			delete(out.Requirements, key)
		default:
			out.Requirements = out.Requirements.With(capacity.In(key, list...))
		}
	}
}

// planned fills in a claim without an instance from the types it may become: pods may count on the least of them, the
// pool's limits are charged with the most.
func planned(out *capacity.Node, c *karpv1.NodeClaim, types []*capacity.InstanceType) {
	out.Capacity = capacity.FromList(c.Spec.Resources.Requests)
	for i, t := range types {
		out.Capacity = out.Capacity.Max(t.Capacity)
		if i == 0 {
			out.Allocatable = t.Allocatable
		} else {
			out.Allocatable = out.Allocatable.Min(t.Allocatable)
		}
	}
}

// expected completes what a booting node reports with what its claim promises for the resources it reports nothing of.
func expected(reported, promised capacity.Resources) capacity.Resources {
	or := func(a, b int64) int64 {
		if a == 0 {
			return b
		}
		return a
	}
	out := capacity.Resources{
		CPU: or(reported.CPU, promised.CPU), Memory: or(reported.Memory, promised.Memory),
		Ephemeral: or(reported.Ephemeral, promised.Ephemeral), Pods: or(reported.Pods, promised.Pods), Extended: promised.Extended,
	}
	for _, q := range reported.Extended {
		if promised.Get(q.Name) == 0 {
			out = out.Add(capacity.Resources{Extended: []capacity.Quantity{q}})
		}
	}
	return out
}

// price is that of the offering the node was bought as, 0 if it is not sold any more.
func price(cat *capacity.Catalog, n *capacity.Node) float64 {
	t := cat.Type(n.InstanceType)
	if t == nil {
		return 0
	}
	for _, o := range t.Offerings {
		if o.Zone == n.Zone && o.CapacityType == n.CapacityType && o.ReservationID == n.Labels[capacity.ReservationIDLabel] {
			return o.Price
		}
	}
	return 0
}

// daemons is what all daemonset pods of the node will ask for: the most it may be, while its type is not decided.
func (cv *converter) daemons(out *capacity.Node, types []*capacity.InstanceType) (most capacity.Resources) {
	p := cv.pools.byName[out.Pool]
	if p == nil {
		return most
	}
	if len(types) == 0 {
		return p.Overhead(&capacity.InstanceType{Labels: out.Labels}, out.Labels)
	}
	for _, t := range types {
		most = most.Max(p.Overhead(t, out.Labels))
	}
	return most
}

// placed are the pods a node holds.
type placed struct {
	bound    map[types.UID]*corev1.Pod
	reserved []*corev1.Pod      // not bound anywhere
	daemons  capacity.Resources // all daemonset pods, bound or still to come; zero if none is to come any more
}

// fill returns the node with its pods: those bound, those reserved, and what the daemonset pods still to come ask for.
// stable is false if a pod's class depends on namespaces.
func (b *Builder) fill(base *capacity.Node, p placed) (out *capacity.Node, stable bool) {
	n := *base
	n.Pods, stable = make(map[*capacity.Class]int, len(p.bound)), true
	if limits := b.limits(n.Name).Volumes; len(limits) > 0 {
		n.Allocatable.Volumes = limits
	}
	n.Used.Volumes = b.inUse(p.bound).Volumes
	add := func(pod *corev1.Pod) *capacity.Class {
		class, ok := b.memo.class(pod, b.sign)
		stable = stable && ok
		n.Pods[class]++
		if pod.DeletionTimestamp != nil {
			if n.Terminating == nil {
				n.Terminating = map[*capacity.Class]int{}
			}
			n.Terminating[class]++
		}
		n.Used = n.Used.Add(class.Requests)
		return class
	}
	var daemons capacity.Resources
	for _, pod := range p.bound {
		if class := add(pod); ofDaemonSet(pod) {
			daemons = daemons.Add(class.Requests)
		}
	}
	for _, pod := range p.reserved {
		add(pod)
	}
	n.Used = n.Used.Add(p.daemons.Sub(daemons).Max(capacity.Resources{}))
	return &n, stable
}
