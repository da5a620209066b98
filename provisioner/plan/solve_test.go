// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/builder"
)

// shop is a small catalogue with AWS-like proportions: 4, 2 and 8 GiB a core, sizes from 2 to 32 cores, three zones.
func shop() *capacity.Catalog {
	var types []*builder.InstanceTypeBuilder
	for _, f := range []struct {
		name string
		gib  int
		per  float64 // US dollars a core and hour
	}{{"m", 4, 0.048}, {"c", 2, 0.0425}, {"r", 8, 0.063}} {
		for _, cores := range []int{2, 4, 8, 16, 32} {
			p := f.per * float64(cores)
			types = append(types, builder.InstanceType(fmt.Sprintf("%s.%d", f.name, cores)).CPU(fmt.Sprint(cores)).Memory(fmt.Sprintf("%dGi", cores*f.gib)).
				Arch("amd64").OnDemand(p, "a", "b", "c").Spot(p*0.4, "a", "b", "c"))
		}
	}
	return builder.Catalog(types...)
}

// describe prints a result compactly: one line a launch ("pool cheapest-type zones capacity-types pods"), placements, unplaced.
func describe(r plan.Result) []string {
	var out []string
	for _, p := range r.Placements {
		out = append(out, fmt.Sprintf("%s on %s", p.Pod.Class.ID, p.Node.ID()))
	}
	for _, l := range r.Launches {
		count := map[string]int{}
		for _, p := range l.Pods {
			count[p.Class.ID]++
		}
		var pods []string
		for id, n := range count {
			pods = append(pods, fmt.Sprintf("%d×%s", n, id))
		}
		slices.Sort(pods)
		labels := ""
		if r, ok := l.Requirements["gen"]; ok {
			labels = " gen=" + strings.Join(r.Values(), ",")
		}
		out = append(out, fmt.Sprintf("%s %s %s%s: %s", l.Pool.Name, l.Offerings[0].Type.Name, strings.Join(l.Requirements[corev1.LabelTopologyZone].Values(), ""), labels, strings.Join(pods, " ")))
	}
	for _, u := range r.Unplaced {
		out = append(out, fmt.Sprintf("%s unplaced: %s %s", u.Pod.Class.ID, u.Pool, u.Reason))
	}
	slices.Sort(out)
	return out
}

func TestSolve(t *testing.T) {
	web := map[string]string{"app": "web"}
	onDemand := capacity.In(karpv1.CapacityTypeLabelKey, "on-demand")
	for name, tc := range map[string]struct {
		pools []*builder.CapacityPoolBuilder
		nodes []*capacity.Node
		pods  [][]*capacity.Pod
		want  []string
	}{
		"one small pod gets the cheapest node that holds it": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop())},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("a").CPU("1").Memory("1Gi").Obj(), 1)},
			want:  []string{"p c.2 abc: 1×a"},
		},
		"memory-heavy and cpu-heavy pods share nodes of the balanced type": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).Require(onDemand, capacity.In(corev1.LabelInstanceTypeStable, "m.8", "c.8"))},
			pods: [][]*capacity.Pod{
				builder.PodsOf(builder.Class("cpu").CPU("4").Memory("2Gi").Obj(), 1),
				builder.PodsOf(builder.Class("mem").CPU("2").Memory("24Gi").Obj(), 1),
			},
			want: []string{"p m.8 abc: 1×cpu 1×mem"},
		},
		"zone spread gives every zone its share on one node": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop())},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("web").Label("app", "web").CPU("1").Memory("2Gi").ZoneSpread(1, web).Obj(), 6)},
			want:  []string{"p c.2 a: 2×web", "p c.2 b: 2×web", "p c.2 c: 2×web"},
		},
		"zone spread counts pods that run already": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop())},
			nodes: []*capacity.Node{builder.CapacityNode("n1").CPU("2").Memory("4Gi").Label(corev1.LabelTopologyZone, "a").
				Pods(builder.Class("web").Label("app", "web").CPU("1").Memory("1Gi").Obj(), 2).Obj()},
			pods: [][]*capacity.Pod{builder.PodsOf(builder.Class("new").Label("app", "web").CPU("1").Memory("1Gi").ZoneSpread(1, web).Obj(), 4)},
			want: []string{"p c.2 b: 2×new", "p c.2 c: 2×new"},
		},
		"host anti-affinity puts one pod on a node": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop())},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("web").Label("app", "web").CPU("500m").Memory("1Gi").Apart(corev1.LabelHostname, web).Obj(), 3)},
			want:  []string{"p c.2 abc: 1×web", "p c.2 abc: 1×web", "p c.2 abc: 1×web"},
		},
		"a pod keeps away from the host of one that does not want it": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).Require(capacity.In(corev1.LabelInstanceTypeStable, "m.32"))},
			nodes: []*capacity.Node{builder.CapacityNode("n1").CPU("32").Memory("128Gi").
				Pods(builder.Class("loner").CPU("1").Apart(corev1.LabelHostname, web).Obj(), 1).Obj()},
			pods: [][]*capacity.Pod{builder.PodsOf(builder.Class("web").Label("app", "web").CPU("1").Obj(), 1)},
			want: []string{"p m.32 abc: 1×web"},
		},
		"zone affinity to itself keeps all pods in one zone": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).Require(capacity.In(corev1.LabelInstanceTypeStable, "m.4"))},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("web").Label("app", "web").CPU("3").Memory("1Gi").Near(corev1.LabelTopologyZone, web).Obj(), 2)},
			want:  []string{"p m.4 a: 1×web", "p m.4 a: 1×web"},
		},
		"host affinity to itself keeps all pods on one node": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop())},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("web").Label("app", "web").CPU("1").Memory("1Gi").Near(corev1.LabelHostname, web).Obj(), 3)},
			want:  []string{"p c.4 abc: 3×web"},
		},
		"what does not fit beside the host it has to be on stays out": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).Require(capacity.In(corev1.LabelInstanceTypeStable, "c.2"))},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("web").Label("app", "web").CPU("1").Memory("1Gi").Near(corev1.LabelHostname, web).Obj(), 3)},
			want:  []string{"p c.2 abc: 2×web", "web unplaced: p TopologyRules"},
		},
		"affinity to pods that are nowhere leaves the pod out": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop())},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("x").CPU("1").Near(corev1.LabelTopologyZone, web).Obj(), 1)},
			want:  []string{"x unplaced: p TopologyRules"},
		},
		"room on a node that is on its way is used first": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop())},
			nodes: []*capacity.Node{builder.CapacityNode("n1").CPU("4").Memory("16Gi").Phase(capacity.Launched).Obj()},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("a").CPU("3").Memory("1Gi").Obj(), 2)},
			want:  []string{"a on n1", "p c.4 abc: 1×a"},
		},
		"a heavier pool is used although a lighter one is cheaper": {
			pools: []*builder.CapacityPoolBuilder{
				builder.CapacityPool("first", shop()).Weight(10).Require(onDemand),
				builder.CapacityPool("second", shop()),
			},
			pods: [][]*capacity.Pod{builder.PodsOf(builder.Class("a").CPU("1").Obj(), 1)},
			want: []string{"first c.2 abc: 1×a"},
		},
		"the next pool serves what the heavier one's limits leave over": {
			pools: []*builder.CapacityPoolBuilder{
				builder.CapacityPool("first", shop()).Weight(10).Limit(corev1.ResourceCPU, "8"),
				builder.CapacityPool("second", shop()),
			},
			pods: [][]*capacity.Pod{builder.PodsOf(builder.Class("a").CPU("7").Memory("1Gi").Obj(), 2)},
			want: []string{"first c.8 abc: 1×a", "second c.8 abc: 1×a"},
		},
		"limits hold inside a batch": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).LimitNodes(2)},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("a").Label("app", "web").CPU("1").Apart(corev1.LabelHostname, web).Obj(), 3)},
			want:  []string{"a unplaced: p LimitReached", "p c.2 abc: 1×a", "p c.2 abc: 1×a"},
		},
		"a limit on nodes is met by fewer and larger ones": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).LimitNodes(2)},
			pods: [][]*capacity.Pod{
				builder.PodsOf(builder.Class("a").CPU("1900m").Memory("3Gi").Obj(), 3),
				builder.PodsOf(builder.Class("b").CPU("1800m").Memory("3Gi").Obj(), 2),
			},
			want: []string{"p c.2 abc: 1×a", "p c.8 abc: 2×a 2×b"},
		},
		"a limit on nodes is met by larger ones for one size of pods, too": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).LimitNodes(1)},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("a").CPU("1900m").Memory("3Gi").Obj(), 8)},
			want:  []string{"p c.16 abc: 8×a"},
		},
		"a tight limit on cores is met by types with more memory a core": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", builder.Catalog(
				builder.InstanceType("wide.8").CPU("8").Memory("16Gi").OnDemand(0.2, "a"),
				builder.InstanceType("deep.2").CPU("2").Memory("16Gi").OnDemand(0.3, "a"),
			)).Limit(corev1.ResourceCPU, "6")},
			pods: [][]*capacity.Pod{builder.PodsOf(builder.Class("a").CPU("500m").Memory("7Gi").Obj(), 6)},
			want: []string{"p deep.2 a: 2×a", "p deep.2 a: 2×a", "p deep.2 a: 2×a"},
		},
		"a node for pods of higher priority grows where a limit allows no other": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).LimitNodes(1)},
			pods: [][]*capacity.Pod{
				builder.PodsOf(builder.Class("low").CPU("1900m").Memory("1Gi").Obj(), 3),
				urgent(builder.PodsOf(builder.Class("high").CPU("1").Memory("1Gi").Obj(), 1)),
			},
			want: []string{"p c.8 abc: 1×high 3×low"},
		},
		"a limit that nothing can meet places what it can": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).LimitNodes(1)},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("a").CPU("20").Memory("3Gi").Obj(), 2)},
			want:  []string{"a unplaced: p LimitReached", "p c.32 abc: 1×a"},
		},
		"what a limit keeps out hides nothing dearer that is within it": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", builder.Catalog(
				builder.InstanceType("bargain.8").CPU("8").Memory("16Gi").OnDemand(0.1, "a"),
				builder.InstanceType("dear.2").CPU("2").Memory("4Gi").OnDemand(0.2, "a"),
			)).Limit(corev1.ResourceCPU, "4")},
			pods: [][]*capacity.Pod{builder.PodsOf(builder.Class("a").CPU("1").Memory("1Gi").Obj(), 1)},
			want: []string{"p dear.2 a: 1×a"},
		},
		"an untolerated taint is the reason": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).Taint("gpu", "true", corev1.TaintEffectNoSchedule)},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("a").CPU("1").Obj(), 1)},
			want:  []string{"a unplaced: p TaintNotTolerated"},
		},
		"the nearest pool is the one that fails last": {
			pools: []*builder.CapacityPoolBuilder{
				builder.CapacityPool("tainted", shop()).Taint("gpu", "true", corev1.TaintEffectNoSchedule),
				builder.CapacityPool("small", shop()),
				builder.CapacityPool("broken", nil).Blocked("EC2NodeClass \"x\" does not exist"),
			},
			pods: [][]*capacity.Pod{builder.PodsOf(builder.Class("huge").CPU("500").Obj(), 1)},
			want: []string{"huge unplaced: small NoInstanceTypeLargeEnough"},
		},
		"daemonset overhead is part of the size": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).Daemons(builder.Class("ds").CPU("300m").Obj())},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("a").CPU("1800m").Memory("1Gi").Obj(), 1)},
			want:  []string{"p c.4 abc: 1×a"},
		},
		"alternatives are all looked at": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop())},
			pods: [][]*capacity.Pod{builder.PodsOf(builder.Class("a").CPU("1").Memory("1Gi").
				Term(capacity.In("team", "nobody")).Term(capacity.In(corev1.LabelTopologyZone, "b")).Obj(), 1)},
			want: []string{"p c.2 b: 1×a"},
		},
		"a label the pool leaves open is chosen by the pod": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).Require(capacity.Exists("team"))},
			pods: [][]*capacity.Pod{
				builder.PodsOf(builder.Class("a").CPU("1").Memory("1Gi").Term(capacity.In("team", "a")).Obj(), 1),
				builder.PodsOf(builder.Class("b").CPU("1").Memory("1Gi").Term(capacity.In("team", "b")).Obj(), 1),
			},
			want: []string{"p c.2 abc: 1×a", "p c.2 abc: 1×b"},
		},
		"higher priority is served first": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).LimitNodes(1).Require(capacity.In(corev1.LabelInstanceTypeStable, "c.2"))},
			pods: [][]*capacity.Pod{
				builder.PodsOf(builder.Class("low").CPU("1900m").Obj(), 1),
				urgent(builder.PodsOf(builder.Class("high").CPU("1").Obj(), 1)),
			},
			want: []string{"low unplaced: p LimitReached", "p c.2 abc: 1×high"},
		},
		"a label that is left open gets the smallest number that every pod allows": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).Require(capacity.Exists("gen"))},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("a").CPU("1").Memory("1Gi").Term(more("gen", "3")).Obj(), 1)},
			want:  []string{"p c.2 abc gen=4: 1×a"},
		},
		"a label that is left open cannot be less than nothing": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).Require(capacity.Exists("gen"))},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("a").CPU("1").Memory("1Gi").Term(less("gen", "0")).Obj(), 1)},
			want:  []string{"a unplaced: p RequirementsIncompatible"},
		},
		"a host port that a daemonset has in one zone is free in the others": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).
				Daemons(builder.Class("d").HostPort(80).Term(capacity.In(corev1.LabelTopologyZone, "a")).Obj())},
			pods: [][]*capacity.Pod{builder.PodsOf(builder.Class("a").CPU("500m").Memory("1Gi").HostPort(80).Obj(), 1)},
			want: []string{"p c.2 bc: 1×a"},
		},
		"a host port that a daemonset has everywhere": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).Daemons(builder.Class("d").HostPort(80).Obj())},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("a").CPU("500m").HostPort(80).Obj(), 1)},
			want:  []string{"a unplaced: p HostPortTaken"},
		},
		"the host port of a daemonset pod that is coming to a node on its way": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).LimitNodes(0).Daemons(builder.Class("d").HostPort(80).Obj())},
			nodes: []*capacity.Node{builder.CapacityNode("").Pool("p", "c1").Phase(capacity.Planned).CPU("4").Memory("8Gi").Obj()},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("a").CPU("500m").HostPort(80).Obj(), 1)},
			want:  []string{"a unplaced: p HostPortTaken"},
		},
		"a pod that a daemonset does not want beside it": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).Daemons(builder.Class("d").Apart(corev1.LabelHostname, web).Obj())},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("web").Label("app", "web").CPU("1").Obj(), 1)},
			want:  []string{"web unplaced: p TopologyRules"},
		},
		"daemonset pods are the company a pod needs": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).
				Daemons(builder.Class("d").Label("app", "web").Term(capacity.In(corev1.LabelTopologyZone, "b")).Obj())},
			pods: [][]*capacity.Pod{builder.PodsOf(builder.Class("a").CPU("3").Near(corev1.LabelHostname, web).Obj(), 2)},
			want: []string{"p c.4 b: 1×a", "p c.4 b: 1×a"},
		},
		"nobody is the first of a group of which one is on a node without the second label": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop()).Require(capacity.In("rack", "1"))},
			nodes: []*capacity.Node{builder.CapacityNode("n1").CPU("1").Label(corev1.LabelTopologyZone, "a").
				Pods(builder.Class("old").Label("app", "web").CPU("1").Obj(), 1).Obj()},
			pods: [][]*capacity.Pod{builder.PodsOf(builder.Class("web").Label("app", "web").CPU("1").
				Near(corev1.LabelTopologyZone, web).Near("rack", web).Obj(), 1)},
			want: []string{"web unplaced: p TopologyRules"},
		},
		"a node for a pod and the one it has to be with": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop())},
			pods: [][]*capacity.Pod{
				builder.PodsOf(builder.Class("large").CPU("6").Memory("1Gi").Near(corev1.LabelHostname, web).Obj(), 2),
				builder.PodsOf(builder.Class("web").Label("app", "web").CPU("1").Memory("1Gi").Obj(), 2),
			},
			want: []string{"p c.8 abc: 1×large 1×web", "p c.8 abc: 1×large 1×web"},
		},
		"pods that have to be near others are dealt after them": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop())},
			pods: [][]*capacity.Pod{
				builder.PodsOf(builder.Class("large").CPU("3").Memory("1Gi").Near(corev1.LabelTopologyZone, web).Obj(), 1),
				builder.PodsOf(builder.Class("web").Label("app", "web").CPU("1").Memory("1Gi").Term(capacity.In(corev1.LabelTopologyZone, "c")).Obj(), 1),
			},
			want: []string{"p c.4 c: 1×large 1×web"},
		},
		"a key no node has keeps nobody out who only wants to be apart": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop())},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("web").Label("app", "web").CPU("500m").Memory("1Gi").Apart("rack", web).Obj(), 3)},
			want:  []string{"p c.2 abc: 3×web"},
		},
		"a pod on a node of an undecided zone may be in any of them": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop())},
			nodes: []*capacity.Node{builder.CapacityNode("").Pool("p", "c1").Planned(capacity.In(corev1.LabelTopologyZone, "a", "b")).
				CPU("1").Pods(builder.Class("old").Label("app", "web").CPU("1").Obj(), 1).Obj()},
			pods: [][]*capacity.Pod{builder.PodsOf(builder.Class("web").Label("app", "web").CPU("1").Memory("1Gi").Apart(corev1.LabelTopologyZone, web).Obj(), 2)},
			want: []string{"p c.2 c: 1×web", "web unplaced: p TopologyRules"},
		},
		"a zone that comes into being by the same plan counts for spread": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop())},
			pods: [][]*capacity.Pod{
				builder.PodsOf(everyZoneCounts(builder.Class("web").Label("app", "web").CPU("1").Memory("1Gi").ZoneSpread(1, web).Term(capacity.In(corev1.LabelTopologyZone, "a", "b")).Obj()), 4),
				builder.PodsOf(builder.Class("other").CPU("1").Memory("1Gi").Term(capacity.In(corev1.LabelTopologyZone, "c")).Obj(), 1),
			},
			want: []string{"p c.2 a: 1×web", "p c.2 b: 1×web", "p c.2 c: 1×other", "web unplaced: p TopologyRules", "web unplaced: p TopologyRules"},
		},
		"a pool that is not ready is the nearest if it would do": {
			pools: []*builder.CapacityPoolBuilder{
				builder.CapacityPool("broken", nil).Require(capacity.In("team", "a")).Blocked("EC2NodeClass \"x\" does not exist"),
				builder.CapacityPool("other", shop()).Require(capacity.In("team", "b")),
			},
			pods: [][]*capacity.Pod{
				builder.PodsOf(builder.Class("a").CPU("1").Term(capacity.In("team", "a")).Obj(), 1),
				builder.PodsOf(builder.Class("c").CPU("1").Term(capacity.In("team", "c")).Obj(), 1),
			},
			want: []string{"a unplaced: broken NodePoolNotReady", "c unplaced: broken RequirementsIncompatible"},
		},
		"host ports do not share a node": {
			pools: []*builder.CapacityPoolBuilder{builder.CapacityPool("p", shop())},
			pods:  [][]*capacity.Pod{builder.PodsOf(builder.Class("a").CPU("500m").Memory("1Gi").HostPort(80).Obj(), 2)},
			want:  []string{"p c.2 abc: 1×a", "p c.2 abc: 1×a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := plan.Input{View: &capacity.View{Nodes: tc.nodes}}
			for _, p := range tc.pools {
				in.View.Pools = append(in.View.Pools, p.Obj())
			}
			for _, p := range tc.pods {
				in.Pods = append(in.Pods, p...)
			}
			if diff := cmp.Diff(tc.want, describe(plan.Solve(in))); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSolveReservationRunsOut checks that the type of a reservation is still bought on demand when the reservation is full.
func TestSolveReservationRunsOut(t *testing.T) {
	pool := builder.CapacityPool("p", builder.Catalog(builder.InstanceType("m.8").CPU("8").Memory("32Gi").OnDemand(0.4, "a").
		Offering(capacity.Offering{CapacityType: karpv1.CapacityTypeReserved, Zone: "a", ReservationID: "cr-1"}))).Obj()
	pool.Reservations = map[string]int{"cr-1": 1}
	got := plan.Solve(plan.Input{
		View: &capacity.View{Pools: []*capacity.Pool{pool}},
		Pods: builder.PodsOf(builder.Class("a").CPU("6").Memory("1Gi").Obj(), 2),
	})
	if diff := cmp.Diff([]string{"p m.8 a: 1×a", "p m.8 a: 1×a"}, describe(got)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

// TestSolveOfferings checks how far the offerings of a launch reach: no dearer than twice the cheapest of their capacity type,
// no devices nobody asked for.
func TestSolveOfferings(t *testing.T) {
	gpu := func(name string) *builder.InstanceTypeBuilder {
		return builder.InstanceType(name).Resource("nvidia.com/gpu", "1").Label("karpenter.k8s.aws/instance-gpu-count", "1")
	}
	pool := builder.CapacityPool("p", builder.Catalog(
		builder.InstanceType("m.2").CPU("2").Memory("8Gi").OnDemand(1, "a").Spot(0.3, "a"),
		builder.InstanceType("m.4").CPU("4").Memory("16Gi").OnDemand(2, "a").Spot(0.7, "a"),
		builder.InstanceType("m.8").CPU("8").Memory("32Gi").OnDemand(4, "a"),
		gpu("g.4").CPU("4").Memory("16Gi").OnDemand(1.5, "a").Spot(0.5, "a"),
	)).Obj()
	for name, tc := range map[string]struct {
		pod  *builder.ClassBuilder
		want string
	}{
		"a plain pod":            {builder.Class("a").CPU("1"), "m.2 spot, m.2 on-demand, m.4 on-demand"},
		"a pod that needs a GPU": {builder.Class("a").CPU("1").Request("nvidia.com/gpu", "1"), "g.4 spot, g.4 on-demand"},
	} {
		t.Run(name, func(t *testing.T) {
			got := plan.Solve(plan.Input{View: &capacity.View{Pools: []*capacity.Pool{pool}}, Pods: builder.PodsOf(tc.pod.Obj(), 1)})
			var list []string
			for _, o := range got.Launches[0].Offerings {
				list = append(list, o.Type.Name+" "+o.CapacityType)
			}
			if s := strings.Join(list, ", "); s != tc.want {
				t.Errorf("offerings %s, want %s", s, tc.want)
			}
		})
	}
}

// TestSolveBars checks that a class keeps away from what it is barred from and from nothing else.
func TestSolveBars(t *testing.T) {
	class := builder.Class("a").CPU("1").Memory("1Gi").Obj()
	node := builder.CapacityNode("n1").CPU("4").Memory("8Gi").Phase(capacity.Launched).Obj()
	all := plan.Bar{Class: class, Pool: "p", Reason: "no"}
	small, here := all, plan.Bar{Class: class, Node: "n1", Reason: "no"}
	small.InstanceType = "c.2"
	for name, tc := range map[string]struct {
		bars []plan.Bar
		want string
	}{
		"none":                     {nil, "a on n1"},
		"the node":                 {[]plan.Bar{here}, "p c.2 abc: 1×a"},
		"the node and a type":      {[]plan.Bar{here, small}, "p m.2 abc: 1×a"},
		"the node and the pool":    {[]plan.Bar{here, all}, "a unplaced: p RefusedByScheduler"},
		"the pool, but no node":    {[]plan.Bar{all}, "a on n1"},
		"another class everywhere": {[]plan.Bar{{Class: builder.Class("b").Obj(), Node: "n1"}}, "a on n1"},
	} {
		t.Run(name, func(t *testing.T) {
			view := &capacity.View{Pools: []*capacity.Pool{builder.CapacityPool("p", shop()).Obj()}, Nodes: []*capacity.Node{node}}
			got := describe(plan.Solve(plan.Input{View: view, Pods: builder.PodsOf(class, 1), Barred: tc.bars}))
			if diff := cmp.Diff([]string{tc.want}, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// everyZoneCounts makes a class's spread count zones the class may not use.
func everyZoneCounts(c *capacity.Class) *capacity.Class {
	for i := range c.Spread {
		c.Spread[i].HonorAffinity = false
	}
	return c
}

func more(key, than string) capacity.Requirement { return bound(key, corev1.NodeSelectorOpGt, than) }

func less(key, than string) capacity.Requirement { return bound(key, corev1.NodeSelectorOpLt, than) }

func bound(key string, op corev1.NodeSelectorOperator, value string) capacity.Requirement {
	r, err := capacity.NewRequirement(key, op, value)
	if err != nil {
		panic(err)
	}
	return r
}

func urgent(pods []*capacity.Pod) []*capacity.Pod {
	for _, p := range pods {
		p.Priority = 1000
	}
	return pods
}
