// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"cmp"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// A group that asks for one topology domain is planned as if its pods selected one value of the label: the value in which
// most of them get a place, and of several such the cheapest. The value stands for as long as any of them has a place;
// where members run is what the scheduler goes by, and so it comes first.

// together is a group of a batch that has to be in one domain.
type together struct {
	group *group
	uids  []types.UID // of its members in the batch
	value string      // decided when members got their places, "" if none has
	claim string      // of a member that has a place, "" if none has
	nodes []string    // of members that are scheduled, sorted
}

// domains finds the groups of the batch that have to be in one domain each.
func (l *ledger) domains(pods []*capacity.Pod) []together {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.groups) == 0 {
		return nil
	}
	var out []together
	at := map[*group]int{}
	for _, q := range pods {
		e := l.pods[q.UID]
		if e == nil || e.group == nil || e.group.domain == "" {
			continue
		}
		i, seen := at[e.group]
		if !seen {
			i = len(out)
			at[e.group] = i
			t := together{group: e.group}
			for _, m := range e.group.members {
				if m.state == planned {
					t.claim = m.claim
				}
			}
			if t.claim != "" {
				t.value = e.group.value
			}
			t.nodes = slices.Sorted(maps.Values(e.group.scheduled))
			out = append(out, t)
		}
		out[i].uids = append(out[i].uids, q.UID)
	}
	return out
}

// settleDomain notes the domain of a group.
func (l *ledger) settleDomain(g *group, value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.value = value
}

// keepTogether chooses a domain for each group that has to be in one, and returns the pods with what that means for them.
func (p *Provisioner) keepTogether(ctx context.Context, v *capacity.View, pods []*capacity.Pod, objects map[types.UID]*corev1.Pod) []*capacity.Pod {
	groups := p.ledger.domains(pods)
	if len(groups) == 0 {
		return pods
	}
	moved := map[types.UID]*capacity.Pod{}
	for _, t := range groups {
		value := cmp.Or(p.domainOfNodes(t.nodes, t.group.domain), t.value, domainOf(v, t.claim, t.group.domain))
		if value == "" {
			value = p.chooseDomain(v, t, objects)
			log.FromContext(ctx).Info("chose a domain for a pod group", "podGroup", t.group.key, "key", t.group.domain, "domain", value, "pods", len(t.uids))
		}
		p.ledger.settleDomain(t.group, value)
		for _, q := range p.within(t, value, objects) {
			moved[q.UID] = q
		}
	}
	out := slices.Clone(pods)
	for i, q := range out {
		if m := moved[q.UID]; m != nil {
			out[i] = m
		}
	}
	return out
}

// within are the group's pods as if they required the domain, beside whatever they require themselves.
func (p *Provisioner) within(t together, value string, objects map[types.UID]*corev1.Pod) []*capacity.Pod {
	out := make([]*capacity.Pod, 0, len(t.uids))
	for _, uid := range t.uids {
		pod := *objects[uid] // what is below the surface is shared and read-only
		pod.UID = types.UID(string(uid) + "@" + t.group.domain + "=" + value)
		pod.Spec.Affinity = requiring(pod.Spec.Affinity, t.group.domain, value)
		q := *p.Views.Pod(&pod)
		q.UID = uid
		out = append(out, &q)
	}
	return out
}

// requiring is the affinity with a label required beside all that it requires already.
func requiring(a *corev1.Affinity, key, value string) *corev1.Affinity {
	if a = a.DeepCopy(); a == nil {
		a = &corev1.Affinity{}
	}
	if a.NodeAffinity == nil {
		a.NodeAffinity = &corev1.NodeAffinity{}
	}
	n := a.NodeAffinity
	if n.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		n.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	terms := n.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		terms[i].MatchExpressions = append(terms[i].MatchExpressions, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}})
	}
	return a
}

// chooseDomain tries all domains that nodes can be bought in.
func (p *Provisioner) chooseDomain(v *capacity.View, t together, objects map[types.UID]*corev1.Pod) (best string) {
	most, price := -1, 0.0
	for _, value := range domainsOf(v, t.group.domain) {
		r := plan.Solve(plan.Input{View: v, Pods: p.within(t, value, objects), OnlyInFlight: true})
		n, sum := len(t.uids)-len(r.Unplaced), sumPrice(r.Launches)
		if n > most || n == most && sum < price {
			best, most, price = value, n, sum
		}
	}
	return best
}

// domainsOf are the values of the label that nodes can be bought with, sorted.
func domainsOf(v *capacity.View, key string) []string {
	all := map[string]bool{}
	for _, pool := range v.Pools {
		if r, ok := pool.Requirements[key]; ok && r.Finite() {
			for _, value := range r.Values() {
				all[value] = true
			}
			continue
		}
		if pool.Catalog != nil {
			for _, value := range pool.Catalog.Values(key, capacity.FullSet(len(pool.Catalog.Offerings))) {
				all[value] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// domainOfNodes is the domain that scheduled members are in, "" if there are none.
func (p *Provisioner) domainOfNodes(nodes []string, key string) string {
	for _, name := range slices.Compact(nodes) {
		if n, err := p.nodes.Get(name); err == nil && n.Labels[key] != "" {
			return n.Labels[key]
		}
	}
	return ""
}

// domainOf is the domain of the claim's node, "" if that is not decided.
func domainOf(v *capacity.View, claim, key string) string {
	if claim == "" {
		return ""
	}
	for _, n := range v.Nodes {
		if n.Claim != claim {
			continue
		}
		if value := n.Labels[key]; value != "" {
			return value
		}
		if r, ok := n.Requirements[key]; ok && r.Finite() && len(r.Values()) == 1 {
			return r.Values()[0]
		}
	}
	return ""
}
