// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// joiner brings Nodes, NodeClaims and pods together.
type joiner struct {
	b        *Builder
	catalogs map[string]*capacity.Catalog // by class name
	pools    []*capacity.Pool
	bound    map[string][]*corev1.Pod
	reserved map[string][]*corev1.Pod
	charges  []charge
}

// charge is what one claim takes of its pool's limits.
type charge struct {
	pool     string
	capacity capacity.Resources
}

func (j *joiner) join(nodes []*corev1.Node, claims []*karpv1.NodeClaim) []*capacity.Node {
	byProvider := make(map[string]*corev1.Node, len(nodes))
	for _, n := range nodes {
		if n.Spec.ProviderID != "" {
			byProvider[n.Spec.ProviderID] = n
		}
	}
	out := make([]*capacity.Node, 0, len(nodes)+len(claims))
	ours := map[string]bool{}
	for _, c := range claims {
		var n *corev1.Node
		if c.Status.ProviderID != "" {
			n = byProvider[c.Status.ProviderID]
		}
		if n != nil {
			ours[n.Name] = true
		}
		out = append(out, j.claim(c, n))
	}
	for _, n := range nodes {
		if !ours[n.Name] {
			out = append(out, j.foreign(n))
		}
	}
	return out
}

// foreign is a node that no claim stands for.
func (j *joiner) foreign(n *corev1.Node) *capacity.Node {
	out := &capacity.Node{Name: n.Name, Phase: capacity.Usable, Labels: n.Labels, Taints: n.Spec.Taints,
		Capacity: capacity.FromList(n.Status.Capacity), Allocatable: capacity.FromList(n.Status.Allocatable)}
	if leaving(n) {
		out.Phase = capacity.Leaving
	}
	j.fill(out, "", nil)
	return out
}

// claim is a node Slipway (or Karpenter) bought; n is nil until it has joined.
func (j *joiner) claim(c *karpv1.NodeClaim, n *corev1.Node) *capacity.Node {
	out := &capacity.Node{
		Claim: c.Name, ClaimUID: c.UID, Pool: c.Labels[karpv1.NodePoolLabelKey],
		Phase: Phase(c, n), Labels: maps.Clone(c.Labels), Requirements: capacity.Requirements{}, Taints: c.Spec.Taints,
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	j.undecided(out, c)
	switch {
	case n != nil:
		out.Name = n.Name
		maps.Copy(out.Labels, n.Labels)
		out.Requirements = nil
		out.Capacity, out.Allocatable = capacity.FromList(n.Status.Capacity), capacity.FromList(n.Status.Allocatable)
		if out.Phase == capacity.Usable || out.Phase == capacity.Leaving {
			out.Taints = n.Spec.Taints
		} else { // a booting kubelet may still report zeros
			out.Allocatable = expected(out.Allocatable, capacity.FromList(c.Status.Allocatable))
		}
	case c.Status.ProviderID != "":
		out.Capacity, out.Allocatable = capacity.FromList(c.Status.Capacity), capacity.FromList(c.Status.Allocatable)
	default:
		j.planned(out, c)
	}
	out.InstanceType, out.Zone = out.Labels[corev1.LabelInstanceTypeStable], out.Labels[corev1.LabelTopologyZone]
	out.CapacityType = out.Labels[karpv1.CapacityTypeLabelKey]
	out.Price = j.price(c, out)
	j.charges = append(j.charges, charge{pool: out.Pool, capacity: out.Capacity})
	j.fill(out, c.Name, c)
	return out
}

// undecided splits the claim's requirements into labels (one value left) and what is open.
func (j *joiner) undecided(out *capacity.Node, c *karpv1.NodeClaim) {
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

// planned fills in a claim without an instance from the types it may become: pods may count on the least of them, the
// pool's limits are charged with the most.
func (j *joiner) planned(out *capacity.Node, c *karpv1.NodeClaim) {
	cat := j.catalogs[c.Spec.NodeClassRef.Name]
	if cat == nil {
		return
	}
	reqs := out.Requirements.And(capacity.FromLabels(out.Labels))
	first := true
	seen := map[*capacity.InstanceType]bool{}
	wanted := capacity.FromList(c.Spec.Resources.Requests)
	for i := range cat.Match(reqs).All {
		t := cat.Offerings[i].Type
		if seen[t] || !wanted.Fits(t.Allocatable) {
			continue
		}
		seen[t] = true
		out.Capacity = out.Capacity.Max(t.Capacity)
		if first {
			out.Allocatable, first = t.Allocatable, false
		} else {
			out.Allocatable = least(out.Allocatable, t.Allocatable)
		}
	}
}

// least is the component-wise minimum; an extended resource that one side lacks is absent.
func least(a, b capacity.Resources) capacity.Resources {
	out := capacity.Resources{CPU: min(a.CPU, b.CPU), Memory: min(a.Memory, b.Memory), Ephemeral: min(a.Ephemeral, b.Ephemeral), Pods: min(a.Pods, b.Pods)}
	for _, q := range a.Extended {
		if v := min(q.Value, b.Get(q.Name)); v > 0 {
			out.Extended = append(out.Extended, capacity.Quantity{Name: q.Name, Value: v})
		}
	}
	return out
}

// expected completes what a booting node reports with what its claim promises for the resources it reports nothing of.
func expected(reported, promised capacity.Resources) capacity.Resources {
	or := func(a, b int64) int64 {
		if a == 0 {
			return b
		}
		return a
	}
	out := capacity.Resources{CPU: or(reported.CPU, promised.CPU), Memory: or(reported.Memory, promised.Memory),
		Ephemeral: or(reported.Ephemeral, promised.Ephemeral), Pods: or(reported.Pods, promised.Pods), Extended: promised.Extended}
	for _, q := range reported.Extended {
		if promised.Get(q.Name) == 0 {
			out = out.Add(capacity.Resources{Extended: []capacity.Quantity{q}})
		}
	}
	return out
}

func (j *joiner) price(c *karpv1.NodeClaim, n *capacity.Node) float64 {
	cat := j.catalogs[c.Spec.NodeClassRef.Name]
	if cat == nil {
		return 0
	}
	t := cat.Type(n.InstanceType)
	if t == nil {
		return 0
	}
	for _, o := range t.Offerings {
		if o.Zone == n.Zone && o.CapacityType == n.CapacityType {
			return o.Price
		}
	}
	return 0
}

// fill counts the pods on the node: those bound, those reserved and not bound, and the daemonset pods still to come.
func (j *joiner) fill(out *capacity.Node, claim string, c *karpv1.NodeClaim) {
	out.Pods = map[*capacity.Class]int{}
	add := func(p *corev1.Pod) {
		class := j.b.memo.class(p, j.b.reach, j.b.namespaces)
		out.Pods[class]++
		out.Used = out.Used.Add(class.Requests)
	}
	here := map[string]bool{}
	var daemons capacity.Resources
	for _, p := range j.bound[out.Name] {
		add(p)
		here[string(p.UID)] = true
		if o := metav1.GetControllerOf(p); o != nil && o.Kind == "DaemonSet" {
			daemons = daemons.Add(j.b.memo.class(p, j.b.reach, j.b.namespaces).Requests)
		}
	}
	for _, p := range j.reserved[claim] {
		if !here[string(p.UID)] {
			add(p)
		}
	}
	if c != nil && (out.Phase == capacity.Planned || out.Phase == capacity.Launched) {
		out.Used = out.Used.Add(j.daemonsToCome(out).Sub(daemons).Max(capacity.Resources{}))
	}
}

// daemonsToCome is what all daemonset pods of the node will ask for.
func (j *joiner) daemonsToCome(out *capacity.Node) capacity.Resources {
	for _, p := range j.pools {
		if p.Name != out.Pool {
			continue
		}
		t := &capacity.InstanceType{Labels: out.Labels}
		return p.Overhead(t, out.Labels)
	}
	return capacity.Resources{}
}

// usage adds up what every pool's claims take of its limits.
func (j *joiner) usage() {
	for _, p := range j.pools {
		for _, c := range j.charges {
			if c.pool == p.Name {
				p.Usage = p.Usage.Add(c.capacity)
				p.Nodes++
			}
		}
	}
}

// Phase says how far a claim and its node have come. n is nil until the node has joined.
func Phase(c *karpv1.NodeClaim, n *corev1.Node) capacity.Phase {
	switch {
	case !c.DeletionTimestamp.IsZero():
		return capacity.Leaving
	case c.Status.ProviderID == "":
		return capacity.Planned
	case n == nil:
		return capacity.Launched
	case leaving(n):
		return capacity.Leaving
	case usable(c, n):
		return capacity.Usable
	default:
		return capacity.Launched
	}
}

// leaving reports whether the node is on its way out or closed for new pods.
func leaving(n *corev1.Node) bool {
	if !n.DeletionTimestamp.IsZero() || n.Spec.Unschedulable {
		return true
	}
	for i := range n.Spec.Taints {
		if n.Spec.Taints[i].Key == karpv1.DisruptedTaintKey {
			return true
		}
	}
	return false
}

// usable reports whether the scheduler can bind the claim's pods to the node: registered, ready, startup taints and the
// taints of booting nodes gone, and every extended resource the claim was bought for reported.
func usable(c *karpv1.NodeClaim, n *corev1.Node) bool {
	if n.Labels[karpv1.NodeRegisteredLabelKey] != "true" || !ready(n) {
		return false
	}
	for _, t := range n.Spec.Taints {
		if booting(t) {
			return false
		}
		for i := range c.Spec.StartupTaints {
			if c.Spec.StartupTaints[i].MatchTaint(&t) {
				return false
			}
		}
	}
	for name, q := range c.Spec.Resources.Requests {
		if have := n.Status.Allocatable[name]; !q.IsZero() && have.IsZero() {
			return false
		}
	}
	return true
}

func ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// booting reports whether the taint is one that every node carries while it starts.
func booting(t corev1.Taint) bool {
	switch t.Key {
	case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeNetworkUnavailable,
		"node.cloudprovider.kubernetes.io/uninitialized", karpv1.UnregisteredTaintKey:
		return true
	}
	return strings.HasPrefix(t.Key, "readiness.k8s.io/")
}
