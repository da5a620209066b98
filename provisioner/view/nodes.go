// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
	placed   map[types.UID]bool // pods in bound
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
	out := &capacity.Node{
		Name: n.Name, Phase: capacity.Usable, Labels: n.Labels, Taints: n.Spec.Taints,
		Capacity: capacity.FromList(n.Status.Capacity), Allocatable: capacity.FromList(n.Status.Allocatable),
	}
	if leaving(n) {
		out.Phase = capacity.Leaving
	}
	out.Allocatable.Volumes = j.volumeLimits(out, nil)
	j.fill(out, nil)
	return out
}

// claim is a node Slipway (or Karpenter) bought; n is nil until it has joined.
func (j *joiner) claim(c *karpv1.NodeClaim, n *corev1.Node) *capacity.Node {
	out := &capacity.Node{Claim: c.Name, ClaimUID: c.UID, Pool: c.Labels[karpv1.NodePoolLabelKey], Phase: Phase(c, n)}
	var daemons capacity.Resources
	if n != nil && (out.Phase == capacity.Usable || out.Phase == capacity.Leaving) {
		out.Name, out.Labels, out.Taints = n.Name, n.Labels, n.Spec.Taints
		out.Capacity = expected(capacity.FromList(n.Status.Capacity), capacity.FromList(c.Status.Capacity))
		out.Allocatable = capacity.FromList(n.Status.Allocatable)
	} else {
		kinds := j.onItsWay(out, c, n)
		if out.Phase != capacity.Leaving {
			daemons = j.daemons(out, kinds)
		}
	}
	out.InstanceType, out.Zone = out.Labels[corev1.LabelInstanceTypeStable], out.Labels[corev1.LabelTopologyZone]
	out.CapacityType = out.Labels[karpv1.CapacityTypeLabelKey]
	out.Price = j.price(c, out)
	out.Allocatable.Volumes = j.volumeLimits(out, j.catalogs[c.Spec.NodeClassRef.Name])
	j.charges = append(j.charges, charge{pool: out.Pool, capacity: out.Capacity})
	j.fill(out, &reservation{pods: j.reserved[c.Name], daemons: daemons})
	return out
}

// onItsWay fills in a node that is not usable yet from what its claim promises and, once it has joined, from what it
// reports: a booting kubelet may still report zeros and lack labels. It returns the types the claim may become.
func (j *joiner) onItsWay(out *capacity.Node, c *karpv1.NodeClaim, n *corev1.Node) []*capacity.InstanceType {
	out.Labels, out.Requirements, out.Taints = maps.Clone(c.Labels), capacity.Requirements{}, c.Spec.Taints
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	j.undecided(out, c)
	kinds := j.candidates(out, c)
	switch {
	case n != nil:
		out.Name, out.Requirements = n.Name, nil
		maps.Copy(out.Labels, n.Labels)
		out.Capacity = expected(capacity.FromList(n.Status.Capacity), capacity.FromList(c.Status.Capacity))
		out.Allocatable = expected(capacity.FromList(n.Status.Allocatable), capacity.FromList(c.Status.Allocatable))
	case c.Status.ProviderID != "":
		out.Capacity, out.Allocatable = capacity.FromList(c.Status.Capacity), capacity.FromList(c.Status.Allocatable)
	default:
		j.planned(out, c, kinds)
	}
	return kinds
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

// candidates are the types the claim is or may become, none if its class's catalogue is not known. For a claim without an
// instance, what they and their offerings have in common becomes the node's labels, and what tells them apart its
// requirements.
func (j *joiner) candidates(out *capacity.Node, c *karpv1.NodeClaim) []*capacity.InstanceType {
	cat := j.catalogs[c.Spec.NodeClassRef.Name]
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
func (j *joiner) planned(out *capacity.Node, c *karpv1.NodeClaim, types []*capacity.InstanceType) {
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

// reservation is what a claim's node is to hold beyond the pods bound to it.
type reservation struct {
	pods    []*corev1.Pod
	daemons capacity.Resources // all daemonset pods, bound or still to come; zero if none is to come any more
}

// fill counts the pods on the node: those bound, those reserved and not bound anywhere, and the daemonset pods still to
// come.
func (j *joiner) fill(out *capacity.Node, r *reservation) {
	out.Pods = map[*capacity.Class]int{}
	out.Used.Volumes = j.b.inUse(j.bound[out.Name]).Volumes
	add := func(p *corev1.Pod) *capacity.Class {
		class := j.b.memo.class(p, j.b.sign)
		out.Pods[class]++
		if p.DeletionTimestamp != nil {
			if out.Terminating == nil {
				out.Terminating = map[*capacity.Class]int{}
			}
			out.Terminating[class]++
		}
		out.Used = out.Used.Add(class.Requests)
		return class
	}
	var daemons capacity.Resources
	for _, p := range j.bound[out.Name] {
		class := add(p)
		if ofDaemonSet(p) {
			daemons = daemons.Add(class.Requests)
		}
	}
	if r == nil {
		return
	}
	for _, p := range r.pods {
		if !j.placed[p.UID] {
			add(p)
		}
	}
	out.Used = out.Used.Add(r.daemons.Sub(daemons).Max(capacity.Resources{}))
}

// volumeLimits are the node's attach limits: its own, and until its drivers have reported them those of its type.
func (j *joiner) volumeLimits(out *capacity.Node, cat *capacity.Catalog) []capacity.Quantity {
	if out.Name != "" {
		if l := j.b.limits(out.Name).Volumes; len(l) > 0 {
			return l
		}
	}
	if cat != nil {
		if t := cat.Type(out.Labels[corev1.LabelInstanceTypeStable]); t != nil {
			return t.Allocatable.Volumes
		}
	}
	return out.Allocatable.Volumes
}

// daemons is what all daemonset pods of the node will ask for: the most it may be, while its type is not decided.
func (j *joiner) daemons(out *capacity.Node, types []*capacity.InstanceType) (most capacity.Resources) {
	i := slices.IndexFunc(j.pools, func(p *capacity.Pool) bool { return p.Name == out.Pool })
	if i < 0 {
		return most
	}
	if len(types) == 0 {
		return j.pools[i].Overhead(&capacity.InstanceType{Labels: out.Labels}, out.Labels)
	}
	for _, t := range types {
		most = most.Max(j.pools[i].Overhead(t, out.Labels))
	}
	return most
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
	case usable(c, n), n.Labels[karpv1.NodeInitializedLabelKey] == "true":
		// A node that was usable once is not on its way when it is not ready for a while: its taints say who may use it.
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
		if booting(t) && !lingering(t) {
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

// lingering reports whether the taint may still be on a node that is ready: the node lifecycle controller takes its NoExecute
// taints off at its next look, up to five seconds later, and pods tolerate them for five minutes (admission plugin
// DefaultTolerationSeconds). Waiting for it would hold every pod of the node.
func lingering(t corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoExecute && (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
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
