// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"cmp"
	"slices"
	"strings"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// staticDrift replaces drifted nodes of pools that keep a fixed number, each by a claim as the template is now. A pool at its limit
// of nodes has no room for a replacement beside the old node and says so.
func (d *decider) staticDrift() {
	drifted := map[*Node]string{}
	list := d.candidates(karpv1.DisruptionReasonDrifted, eventual, func(n *Node) bool {
		if n.Pool == nil || !n.Pool.Static() {
			return false
		}
		drifted[n] = d.s.Drift(n)
		return drifted[n] != "" && !d.rests(n, karpv1.DisruptionReasonDrifted)
	})
	d.sortDrifted(list)
	count := d.s.claimsOf()
	for _, n := range list {
		if !d.hasBudget(n, karpv1.DisruptionReasonDrifted) {
			d.reject(n, "", stayBudget(karpv1.DisruptionReasonDrifted))
			continue
		}
		if limit, ok := nodeLimit(n.Pool.NodePool); ok && int64(count[n.PoolName()]) >= limit {
			d.reject(n, eventBlocked, "Can't replace drifted node before it is gone: limits.nodes leaves no room beside it")
			continue
		}
		c := &Command{Record: Record{Reason: karpv1.DisruptionReasonDrifted}, Going: []*Node{n}, Copies: []*Pool{n.Pool}, Drift: drifted[n]}
		if d.add(c) {
			count[n.PoolName()]++
		}
	}
}

// claimsOf counts the claims of each pool that are not being deleted.
func (s *Snapshot) claimsOf() map[string]int {
	out := map[string]int{}
	for _, n := range s.Nodes {
		if n.Claim.DeletionTimestamp == nil {
			out[n.PoolName()]++
		}
	}
	return out
}

// nodeLimit is the pool's limit of nodes.
func nodeLimit(np *karpv1.NodePool) (int64, bool) {
	q, ok := np.Spec.Limits["nodes"]
	return q.Value(), ok
}

// Scale says how many claims each static pool lacks, and which it has too many. Nodes of commands do not count: their
// replacements do. Too many are ended in the order of Karpenter: those without an instance, then empty ones, then those that
// disturb least.
func Scale(s *Snapshot) (lacking map[*Pool]int, surplus []*Node) {
	lacking = map[*Pool]int{}
	of := map[string][]*Node{}
	all := s.claimsOf()
	for _, n := range s.Nodes {
		if n.Pool != nil && n.Pool.Static() && !n.Disrupted() {
			of[n.PoolName()] = append(of[n.PoolName()], n)
		}
	}
	for _, p := range s.Pools {
		if !p.Static() || p.DeletionTimestamp != nil {
			continue
		}
		list := of[p.Name]
		want := int(*p.Spec.Replicas)
		if k := want - len(list) - s.coming(p.Name); k > 0 {
			if limit, ok := nodeLimit(p.NodePool); ok {
				k = min(k, max(int(limit)-all[p.Name], 0))
			}
			if k > 0 {
				lacking[p] = k
			}
			continue
		}
		slices.SortFunc(list, func(a, b *Node) int {
			return cmp.Or(cmp.Compare(rankOf(a), rankOf(b)), cmp.Compare(a.Cost, b.Cost), strings.Compare(a.Claim.Name, b.Claim.Name))
		})
		surplus = append(surplus, list[:max(len(list)-want, 0)]...)
	}
	return lacking, surplus
}

// coming counts the pool's claims that were written a moment ago.
func (s *Snapshot) coming(pool string) (n int) {
	for _, of := range s.unseen {
		if of == pool {
			n++
		}
	}
	return n
}

func rankOf(n *Node) int {
	switch {
	case n.Claim.Status.ProviderID == "":
		return 0
	case n.Empty():
		return 1
	}
	return 2
}
