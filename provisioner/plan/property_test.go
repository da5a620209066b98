// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/builder"
)

// randomInput makes a cluster and pods with every rule the planner knows, from the seed alone.
func randomInput(seed uint64) plan.Input {
	r := rand.New(rand.NewPCG(seed, 1))
	view := &capacity.View{}
	for i := range 1 + r.IntN(3) {
		b := builder.CapacityPool(fmt.Sprintf("pool-%d", i), shop()).Weight(int32(r.IntN(3)))
		if r.IntN(3) == 0 {
			b.Limit(corev1.ResourceCPU, fmt.Sprint(8+r.IntN(64)))
		}
		if r.IntN(4) == 0 {
			b.LimitNodes(int64(r.IntN(6)))
		}
		if r.IntN(4) == 0 {
			b.Require(capacity.In(corev1.LabelTopologyZone, "a", "b"))
		}
		if r.IntN(4) == 0 {
			b.Daemons(builder.Class("ds").CPU("200m").Memory("100Mi").Obj())
		}
		if r.IntN(4) == 0 {
			b.Require(capacity.Exists("team"))
		}
		view.Pools = append(view.Pools, b.Obj())
	}
	in := plan.Input{View: view}
	for i := range 1 + r.IntN(8) {
		c := randomClass(r, i)
		pods := builder.PodsOf(c, 1+r.IntN(12))
		for _, p := range pods {
			p.Priority = int32(i % 2)
		}
		in.Pods = append(in.Pods, pods...)
	}
	for i := range r.IntN(4) {
		view.Nodes = append(view.Nodes, builder.CapacityNode(fmt.Sprintf("node-%d", i)).CPU("8").Memory("32Gi").
			Label(corev1.LabelTopologyZone, string("abc"[r.IntN(3)])).Pods(randomClass(r, 100+i), r.IntN(3)).Obj())
	}
	return in
}

func randomClass(r *rand.Rand, i int) *capacity.Class {
	group := map[string]string{"group": fmt.Sprint(r.IntN(3))}
	b := builder.Class(fmt.Sprintf("class-%d", i)).CPU(fmt.Sprintf("%dm", 100+r.IntN(6000))).Memory(fmt.Sprintf("%dMi", 64+r.IntN(12000))).
		Label("group", group["group"])
	switch r.IntN(8) {
	case 0:
		b.ZoneSpread(1+r.IntN(2), group)
	case 1:
		b.NodeSpread(1, group)
	case 2:
		b.Apart(corev1.LabelHostname, group)
	case 3:
		b.Apart(corev1.LabelTopologyZone, group)
	case 4:
		b.Near(corev1.LabelTopologyZone, group)
	case 5:
		b.Term(capacity.In(corev1.LabelTopologyZone, "a")).Term(capacity.In(corev1.LabelTopologyZone, "c"))
	case 6:
		b.HostPort(int32(8000 + r.IntN(2)))
	}
	if r.IntN(6) == 0 {
		b.Term(capacity.In("team", fmt.Sprint(r.IntN(2))))
	}
	switch weight := int32(1 + r.IntN(100)); r.IntN(10) {
	case 0:
		b.Prefer(weight, capacity.In(corev1.LabelTopologyZone, "b"))
	case 1:
		b.Prefer(weight, capacity.In(corev1.LabelInstanceTypeStable, "m.8", "r.4"))
	case 2:
		b.PreferNear(weight, corev1.LabelTopologyZone, group)
	case 3:
		b.PreferApart(weight, corev1.LabelHostname, group)
	case 4:
		b.SoftSpread(corev1.LabelTopologyZone, group)
	}
	return b.Obj()
}

// TestPreferencesAreFree checks, on random clusters, that topology preferences place no pod less and cost no node more than
// without them: they choose where nodes are, not how many.
func TestPreferencesAreFree(t *testing.T) {
	for seed := range uint64(200) {
		in, plain := randomInput(seed), randomInput(seed)
		for _, p := range plain.Pods {
			p.Class.SoftSpread, p.Class.PreferredAffinity, p.Class.PreferredAntiAffinity = nil, nil, nil
		}
		for _, input := range []*plan.Input{&in, &plain} {
			input.View.Nodes = nil // which of them a pod is put on may leave others more or less room
		}
		a, b := plan.Solve(in), plan.Solve(plain)
		if len(a.Unplaced) != len(b.Unplaced) || len(a.Launches) != len(b.Launches) {
			t.Errorf("seed %d: %d nodes and %d pods without a place, %d and %d without preferences", seed, len(a.Launches), len(a.Unplaced), len(b.Launches), len(b.Unplaced))
		}
	}
}

// TestSolveKeepsItsPromises checks, on random clusters, what must hold for every plan: each pod is placed or explained
// exactly once, nothing is over-committed on any offering of a launch, limits hold, and shuffling the pods changes nothing.
func TestSolveKeepsItsPromises(t *testing.T) {
	for seed := range uint64(400) {
		in := randomInput(seed)
		got := plan.Solve(in)
		if err := check(in, got); err != nil {
			t.Fatalf("seed %d: %v\n%v", seed, err, describe(got))
		}
		shuffled := randomInput(seed)
		rand.New(rand.NewPCG(seed, 2)).Shuffle(len(shuffled.Pods), func(i, j int) {
			shuffled.Pods[i], shuffled.Pods[j] = shuffled.Pods[j], shuffled.Pods[i]
		})
		if diff := cmp.Diff(describe(got), describe(plan.Solve(shuffled))); diff != "" {
			t.Fatalf("seed %d: shuffled pods gave another plan (-in order +shuffled):\n%s", seed, diff)
		}
	}
}

func check(in plan.Input, r plan.Result) error {
	seen := map[string]int{}
	for _, p := range r.Placements {
		seen[string(p.Pod.UID)]++
	}
	for _, u := range r.Unplaced {
		seen[string(u.Pod.UID)]++
		if u.Reason == "" || u.Detail == "" {
			return fmt.Errorf("pod %s is unplaced without a reason: %+v", u.Pod.UID, u)
		}
	}
	used, nodes := map[string]capacity.Resources{}, map[string]int64{}
	for _, l := range r.Launches {
		if len(l.Pods) == 0 || len(l.Offerings) == 0 {
			return fmt.Errorf("launch of pool %s has %d pods and %d offerings", l.Pool.Name, len(l.Pods), len(l.Offerings))
		}
		var most capacity.Resources
		for i, o := range l.Offerings {
			if i > 0 && o.Price < l.Offerings[i-1].Price {
				return fmt.Errorf("offerings of a launch are not ranked by price")
			}
			if !l.Requests.Fits(o.Type.Allocatable) {
				return fmt.Errorf("launch asks %s, its offering %s has %s", l.Requests, o.Type.Name, o.Type.Allocatable)
			}
			most = most.Max(o.Type.Capacity)
		}
		var sum capacity.Resources
		ports := map[capacity.HostPort]bool{}
		for _, p := range l.Pods {
			seen[string(p.UID)]++
			sum = sum.Add(p.Class.Requests)
			for _, h := range p.Class.HostPorts {
				if ports[h] {
					return fmt.Errorf("two pods with host port %d on one node", h.Port)
				}
				ports[h] = true
			}
		}
		if !sum.Fits(l.Requests) {
			return fmt.Errorf("pods ask %s, launch only %s", sum, l.Requests)
		}
		used[l.Pool.Name] = used[l.Pool.Name].Add(most)
		nodes[l.Pool.Name]++
	}
	for _, p := range in.View.Pools {
		if p.LimitNodes != nil && p.Nodes+nodes[p.Name] > *p.LimitNodes {
			return fmt.Errorf("pool %s has %d nodes and buys %d, its limit is %d", p.Name, p.Nodes, nodes[p.Name], *p.LimitNodes)
		}
		for name, q := range p.Limits {
			if have, limit := used[p.Name].Get(name)+p.Usage.Get(name), capacity.FromList(corev1.ResourceList{name: q}).Get(name); have > limit {
				return fmt.Errorf("pool %s uses %d of %d %s", p.Name, have, limit, name)
			}
		}
	}
	for _, p := range in.Pods {
		if seen[string(p.UID)] != 1 {
			return fmt.Errorf("pod %s has %d places", p.UID, seen[string(p.UID)])
		}
	}
	return topologyHolds(in, r)
}

// site is a node with what is on it in the end, new or old.
type site struct {
	zones []string // possible zones
	pods  []*capacity.Class
	fresh int // how many of the last pods were placed by the plan
	node  *capacity.Node
}

// counts reports whether the site is one of those a spread of the class looks at: a node that the class's node affinity
// refuses is none, and its zone is no domain because of it (nodeAffinityPolicy Honor, the default).
func (s *site) counts(c *capacity.Class, sp capacity.Spread) bool {
	return !sp.HonorAffinity || s.node.Satisfies(c.NodeTerms)
}

// topologyHolds checks the required topology rules of every placed pod against the final state, independently of how the
// planner counts: zone spread within its skew over all zones in use that count, anti-affinity both ways, affinity.
func topologyHolds(in plan.Input, r plan.Result) error {
	var sites []*site
	byNode := map[*capacity.Node]*site{}
	for _, n := range in.View.Nodes {
		s := &site{zones: []string{n.Labels[corev1.LabelTopologyZone]}, node: n}
		for c, k := range n.Pods {
			for range k {
				s.pods = append(s.pods, c)
			}
		}
		byNode[n] = s
		sites = append(sites, s)
	}
	for _, p := range r.Placements {
		byNode[p.Node].pods = append(byNode[p.Node].pods, p.Pod.Class)
		byNode[p.Node].fresh++
	}
	for _, l := range r.Launches {
		s := &site{zones: l.Requirements[corev1.LabelTopologyZone].Values(), node: &capacity.Node{Labels: l.Labels()}}
		for _, p := range l.Pods {
			s.pods = append(s.pods, p.Class)
			s.fresh++
		}
		sites = append(sites, s)
	}
	for _, s := range sites {
		for i := len(s.pods) - s.fresh; i < len(s.pods); i++ {
			if err := podHolds(sites, s, i); err != nil {
				return err
			}
		}
	}
	return nil
}

func podHolds(sites []*site, s *site, i int) error {
	c := s.pods[i]
	same := func(key string, o *site) bool {
		return o == s || (key == corev1.LabelTopologyZone && len(o.zones) == 1 && len(s.zones) == 1 && o.zones[0] == s.zones[0])
	}
	for _, t := range c.AntiAffinity {
		if t.Key == corev1.LabelTopologyZone && len(s.zones) != 1 {
			return fmt.Errorf("%s has a zone rule, but its node may be in %v", c.ID, s.zones)
		}
		for _, o := range sites {
			for j, other := range o.pods {
				if (o == s && j == i) || !same(t.Key, o) || !t.Matches(other) {
					continue
				}
				return fmt.Errorf("%s is with %s in spite of its anti-affinity over %s", c.ID, other.ID, t.Key)
			}
		}
	}
	for _, t := range c.Affinity {
		found, exists := false, false
		for _, o := range sites {
			for j, other := range o.pods {
				if (o == s && j == i) || !t.Matches(other) {
					continue
				}
				exists = true
				found = found || same(t.Key, o)
			}
		}
		if exists && !found && !t.Matches(c) { // a pod that its own term selects may have been the first
			return fmt.Errorf("%s is not near the pods it wants over %s", c.ID, t.Key)
		}
	}
	for _, sp := range c.Spread {
		counts := map[string]int{}
		for k, o := range sites {
			d := fmt.Sprint(k)
			if !o.counts(c, sp) {
				continue
			}
			if sp.Key == corev1.LabelTopologyZone {
				if len(o.zones) != 1 {
					continue
				}
				d = o.zones[0]
			}
			counts[d] += 0
			for _, other := range o.pods {
				if sp.Matches(c.Namespace, other) {
					counts[d]++
				}
			}
		}
		if sp.Key == corev1.LabelHostname {
			continue // the least loaded host is a new, empty one; checked by the table
		}
		mine := counts[s.zones[0]]
		for _, z := range []string{"a", "b", "c"} {
			n, inUse := counts[z]
			if inUse && mine-n > sp.MaxSkew && !older(sites, s, c, sp) {
				return fmt.Errorf("%s: zone %s has %d pods, zone %s %d, maxSkew %d", c.ID, s.zones[0], mine, z, n, sp.MaxSkew)
			}
		}
	}
	return nil
}

// older reports whether pods the plan did not bind by this constraint (already running, or of classes without it) count
// in it: they may exceed any skew.
func older(sites []*site, _ *site, c *capacity.Class, sp capacity.Spread) bool {
	for _, o := range sites {
		for i, other := range o.pods {
			if other != c && sp.Matches(c.Namespace, other) {
				return true
			}
			if i < len(o.pods)-o.fresh && sp.Matches(c.Namespace, other) {
				return true
			}
		}
	}
	return false
}
