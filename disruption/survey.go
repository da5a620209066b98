// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Objects are those of a cluster that a snapshot is made of where nobody watches them.
type Objects struct {
	Pools   []*karpv1.NodePool
	Classes []*v1.EC2NodeClass
	Claims  []*karpv1.NodeClaim
	Nodes   []*corev1.Node
	Pods    []*corev1.Pod // bound ones
	PDBs    []*policyv1.PodDisruptionBudget
	// Waiting are pods that are about to be planned.
	Waiting []*capacity.Pod
}

// Survey makes the snapshot of a cluster that is looked at once, at the instant now: what passes remember of it and what EC2
// knows of its instances is not in it. convert makes pods what the planner knows, as the view's builder does.
func Survey(now time.Time, view *capacity.View, o Objects, convert func(*corev1.Pod) *capacity.Pod) *Snapshot {
	s := &Snapshot{Now: now, View: view, Pools: map[string]*Pool{}, limits: newLimits(o.PDBs)}
	for _, np := range o.Pools {
		if capacity.Managed(np.Spec.Template.Spec.NodeClassRef) {
			s.Pools[np.Name] = newPool(np, o.Classes)
		}
	}
	classes := map[*capacity.Class]bool{}
	for _, p := range o.Waiting {
		if !classes[p.Class] {
			classes[p.Class] = true
			s.Waiting = append(s.Waiting, p)
		}
	}
	planned, nodes, pods := byClaim(view), map[string]*corev1.Node{}, map[string][]*corev1.Pod{}
	for _, n := range o.Nodes {
		nodes[n.Name] = n
	}
	for _, p := range o.Pods {
		pods[p.Spec.NodeName] = append(pods[p.Spec.NodeName], p)
	}
	for _, claim := range o.Claims {
		if !capacity.Managed(claim.Spec.NodeClassRef) {
			continue
		}
		n := &Node{
			Claim: claim, Pool: s.Pools[claim.Labels[karpv1.NodePoolLabelKey]], Planned: planned[claim.Name],
			Record: ParseRecord(claim.Annotations[RecordAnnotation]), Load: &Load{Cost: baseCost},
		}
		if node := nodes[claim.Status.NodeName]; node != nil && node.Spec.ProviderID == claim.Status.ProviderID {
			n.Node, n.Load = node, NewLoad(pods[node.Name], convert, nil)
		}
		s.Nodes = append(s.Nodes, n)
	}
	slices.SortFunc(s.Nodes, func(a, b *Node) int { return strings.Compare(a.Claim.Name, b.Claim.Name) })
	return s
}

// byClaim are the view's nodes that have a claim.
func byClaim(view *capacity.View) map[string]*capacity.Node {
	out := make(map[string]*capacity.Node, len(view.Nodes))
	for _, n := range view.Nodes {
		if n.Claim != "" {
			out[n.Claim] = n
		}
	}
	return out
}

func newPool(np *karpv1.NodePool, classes []*v1.EC2NodeClass) *Pool {
	p := &Pool{NodePool: np, Settings: capacity.ParsePoolAnnotations(np.Annotations)}
	for _, c := range classes {
		if c.Name == np.Spec.Template.Spec.NodeClassRef.Name {
			p.Class = c
		}
	}
	return p
}

// Unbounded is the snapshot with budgets that allow everything: what would be disrupted if nothing had to happen little by little.
func (s *Snapshot) Unbounded() *Snapshot {
	out := *s
	out.Pools, out.Nodes = make(map[string]*Pool, len(s.Pools)), make([]*Node, len(s.Nodes))
	for name, p := range s.Pools {
		open := *p
		open.NodePool = p.NodePool.DeepCopy()
		open.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
		out.Pools[name] = &open
	}
	for i, n := range s.Nodes {
		fresh := *n
		fresh.Pool = out.Pools[n.PoolName()]
		out.Nodes[i] = &fresh
	}
	return &out
}

// Pods are those the command moves, without their nodes, by the UID the planner knows them by.
func (cmd *Command) Pods() map[types.UID]*corev1.Pod { return objects(cmd.Going) }

// Stays says for every node that no command takes away why that is, in the order of s.Nodes: what a decision has said of it, or
// what it did not find worth saying. Only rejections have an Event.
func Stays(s *Snapshot, d *Decision) []Rejection {
	going, said, fed := map[*Node]bool{}, map[*Node]Rejection{}, map[string]bool{}
	for _, cmd := range d.Commands {
		for _, n := range cmd.Going {
			going[n] = true
		}
		for _, p := range cmd.Placements {
			fed[p.Node.ID()] = true
		}
	}
	for _, r := range d.Rejections {
		said[r.Node] = r
	}
	var out []Rejection
	for _, n := range s.Nodes {
		if going[n] {
			continue
		}
		r, ok := said[n]
		if !ok || r.Message == staySettle || r.Message == stayNothing { // more can be said to who asks once
			r = Rejection{Node: n, Message: s.quiet(n, d.Quotas[n.PoolName()], fed)}
		}
		out = append(out, r)
	}
	return out
}

// quiet is why a node stays of which a decision says nothing.
func (s *Snapshot) quiet(n *Node, q *Quota, fed map[string]bool) string {
	if why, _ := s.blocker(n, graceful); why != "" {
		return why
	}
	if why, _ := n.unconsolidatable(); why != "" {
		return why
	}
	reason := karpv1.DisruptionReasonUnderutilized
	if n.Empty() {
		reason = karpv1.DisruptionReasonEmpty
	}
	at, ok := consolidatableAt(n, time.Time{})
	switch initialized, _ := n.condition(karpv1.ConditionTypeInitialized); {
	case !ok:
		return "NodeClaim isn't initialized"
	case s.Now.Before(at):
		return fmt.Sprintf("consolidateAfter of NodePool %q passes in %s", n.PoolName(), at.Sub(s.Now).Round(time.Second))
	case !n.Empty() && s.Now.Sub(initialized) < n.minAge():
		return fmt.Sprintf("Node is younger than %s", n.minAge())
	case !n.Empty() && s.Now.Sub(initialized) < settledFor && n.settled():
		return "Consolidation has bought the node, and it still holds what it was bought for"
	case n.Planned != nil && fed[n.Planned.ID()]:
		return "Node takes the pods of nodes that are going"
	case q == nil || q.Left(reason) == 0:
		return stayBudget(reason)
	}
	return "Nothing would be saved without it in this pass"
}
