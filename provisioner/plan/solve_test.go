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
		out = append(out, fmt.Sprintf("%s %s %s: %s", l.Pool.Name, l.Offerings[0].Type.Name, strings.Join(l.Requirements[corev1.LabelTopologyZone].Values(), ""), strings.Join(pods, " ")))
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

func urgent(pods []*capacity.Pod) []*capacity.Pod {
	for _, p := range pods {
		p.Priority = 1000
	}
	return pods
}
