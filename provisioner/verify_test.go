// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/hypothesis"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/builder"
)

func TestJudge(t *testing.T) {
	calls := 0
	for name, tc := range map[string]struct {
		judge Judge
		want  []string
	}{
		"accepts": {
			judge: judgeFunc(func(hypothesis.Trial) string { return "" }),
			want:  []string{"launch for default/b,default/a", "event a Normal Nominated ", "event b Normal Nominated "},
		},
		"refuses a class everywhere: it is unplaced in the plugin's words": {
			judge: judgeFunc(func(t hypothesis.Trial) string {
				if t.Pod.Name == "a" {
					return "no such device"
				}
				return ""
			}),
			want: []string{
				`event a Warning FailedScheduling no node can be bought for the pod; nearest NodePool "p": Filter: no such device`, "release a",
				"launch for default/b", "event b Normal Nominated ",
			},
		},
		"refuses and accepts in turn: bounded": {
			judge: judgeFunc(func(hypothesis.Trial) string { calls++; return fmt.Sprintf("reason %d", calls) }),
			want: []string{
				`event b Warning FailedScheduling no node can be bought for the pod; nearest NodePool "p": Filter: reason 3`,
				`event a Warning FailedScheduling no node can be bought for the pod; nearest NodePool "p": Filter: reason 4`, "release a b",
			},
		},
		"is broken: the plan is carried out": {
			judge: brokenJudge{},
			want:  []string{"launch for default/b,default/a", "event a Normal Nominated ", "event b Normal Nominated "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			calls = 0
			inBubble(t, tc.judge, func(b *bed) {
				b.run()
				b.offer(pod("a", "1"), pod("b", "2"))
				got := b.take()
				slices.Sort(got) // several pods are told at once, in no order that matters
				slices.Sort(tc.want)
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

type brokenJudge struct{}

func (brokenJudge) Verify(context.Context, []hypothesis.Node, []hypothesis.Trial) ([]hypothesis.Refusal, error) {
	return nil, errors.New("no snapshot")
}

// planOf makes a plan of one launch of pool p for pods a and b, b placed first, and one placement of c on node n1.
func planOf() (plan.Result, map[types.UID]*corev1.Pod) {
	class := func(id, cpu string) *capacity.Class { return builder.Class(id).CPU(cpu).Obj() }
	a, b, c := builder.PodsOf(class("a", "1"), 1)[0], builder.PodsOf(class("b", "2"), 1)[0], builder.PodsOf(class("c", "1"), 1)[0]
	catalog := shop()
	pool := builder.CapacityPool("p", catalog).Taint("team", "x", corev1.TaintEffectNoSchedule).Require(capacity.In("team", "x")).Obj()
	r := plan.Result{
		Placements: []plan.Placement{{Pod: c, Node: builder.CapacityNode("n1").Pool("p", "c1").Phase(capacity.Launched).CPU("4").Obj()}},
		Launches: []plan.Launch{{
			Pool: pool, Requirements: pool.Requirements, Offerings: catalog.Offerings[:2], Pods: []*capacity.Pod{a, b}, Steps: []int{2, 1},
			Requests: capacity.Resources{CPU: 3100, Pods: 3}, // one daemonset pod with 100m
		}},
	}
	pods := map[types.UID]*corev1.Pod{}
	for _, p := range []*capacity.Pod{a, b, c} {
		pods[p.UID] = builder.Pod(p.Name).UID(string(p.UID)).Obj()
	}
	return r, pods
}

func TestHypotheses(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		r, pods := planOf()
		reserved := pod("reserved", "1")
		b.ledger.adopt("c1", "n1", []*corev1.Pod{reserved}, builder.Epoch(), true)
		onWay := builder.CapacityNode("n1").Pool("p", "c1").Phase(capacity.Launched).CPU("4").Pods(builder.Class("r").CPU("1").Obj(), 1).Obj()
		onWay.Used.CPU += 250 // daemonset pods to come
		v := &capacity.View{Nodes: []*capacity.Node{
			onWay, builder.CapacityNode("usable").Pool("p", "c2").CPU("4").Obj(), builder.CapacityNode("other").CPU("4").Obj(), builder.CapacityNode("gone").Pool("p", "c3").Phase(capacity.Leaving).Obj(),
		}}
		classes := map[*corev1.Pod]*capacity.Class{reserved: builder.Class("r").CPU("1").Obj()}
		nodes, trials := hypotheses(v, &r, Pods{Wanting: pods, Reserved: b.ledger.reserved(), Class: func(p *corev1.Pod) *capacity.Class { return classes[p] }})
		var got []string
		for _, n := range nodes {
			got = append(got, fmt.Sprintf("%s cpu %s taints %d team %q present %d", n.Node.Name, n.Node.Status.Allocatable.Cpu(), len(n.Node.Spec.Taints), n.Node.Labels["team"], len(n.Present)))
		}
		for _, x := range trials {
			got = append(got, x.Pod.Name+" on "+x.Node)
		}
		want := []string{
			`c1 cpu 3750m taints 0 team "" present 1`,
			`slipway-planned-0 cpu 3900m taints 1 team "x" present 0`,
			"c-0 on c1", "b-0 on slipway-planned-0", "a-0 on slipway-planned-0",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("hypotheses and trials (-want +got):\n%s", diff)
		}
	})
}

func TestBarsAndWithout(t *testing.T) {
	type want struct{ Bars, Launched, Placed, Unplaced []string }
	for name, tc := range map[string]struct {
		refused []string // pods
		want    want
	}{
		"nothing refused": {nil, want{Launched: []string{"a-0 b-0 asks cpu=3100m pods=3"}, Placed: []string{"c-0"}}},
		"one of two pods of a launch": {[]string{"a-0"}, want{
			Bars: []string{"a p/m5.xlarge  F: no"}, Launched: []string{"b-0 asks cpu=2100m pods=2"}, Placed: []string{"c-0"}, Unplaced: []string{"a-0 p RefusedByScheduler F: no"},
		}},
		"all pods of a launch: nothing is bought": {[]string{"a-0", "b-0"}, want{
			Bars: []string{"a p/m5.xlarge  F: no", "b p/m5.xlarge  F: no"}, Placed: []string{"c-0"}, Unplaced: []string{"a-0 p RefusedByScheduler F: no", "b-0 p RefusedByScheduler F: no"},
		}},
		"a placement": {[]string{"c-0"}, want{
			Bars: []string{"c / n1 F: no"}, Launched: []string{"a-0 b-0 asks cpu=3100m pods=3"}, Unplaced: []string{"c-0 p RefusedByScheduler F: no"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, pods := planOf()
			var refusals []hypothesis.Refusal
			for _, n := range tc.refused {
				refusals = append(refusals, hypothesis.Refusal{Trial: hypothesis.Trial{Pod: pods[types.UID("default/"+n)]}, Plugin: "F", Reason: "no"})
			}
			var got want
			for _, b := range bars(&r, refusals, nil) {
				got.Bars = append(got.Bars, fmt.Sprintf("%s %s/%s %s %s", b.Class.ID, b.Pool, b.InstanceType, b.Node, b.Reason))
			}
			left := without(r, refusals)
			for _, l := range left.Launches {
				var names []string
				for _, p := range l.Pods {
					names = append(names, p.Name)
				}
				got.Launched = append(got.Launched, fmt.Sprintf("%s asks %s", strings.Join(names, " "), l.Requests))
				if len(l.Steps) != len(l.Pods) {
					t.Errorf("%d steps for %d pods", len(l.Steps), len(l.Pods))
				}
			}
			for _, p := range left.Placements {
				got.Placed = append(got.Placed, p.Pod.Name)
			}
			for _, u := range left.Unplaced {
				got.Unplaced = append(got.Unplaced, fmt.Sprintf("%s %s %s %s", u.Pod.Name, u.Pool, u.Reason, u.Detail))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestBarsSpareClassesThatFitElsewhere checks that a class is barred from a pool only if every pod of it was refused there.
func TestBarsSpareClassesThatFitElsewhere(t *testing.T) {
	class := builder.Class("a").CPU("1").Obj()
	pods := builder.PodsOf(class, 2)
	pool := builder.CapacityPool("p", shop()).Obj()
	offerings := pool.Catalog.Offerings
	r := plan.Result{Launches: []plan.Launch{
		{Pool: pool, Pods: pods[:1], Steps: []int{0}, Offerings: offerings}, {Pool: pool, Pods: pods[1:], Steps: []int{1}, Offerings: offerings},
	}}
	refusals := []hypothesis.Refusal{{Trial: hypothesis.Trial{Pod: builder.Pod(pods[0].Name).UID(string(pods[0].UID)).Obj()}, Plugin: "F", Reason: "no"}}
	if got := bars(&r, refusals, nil); len(got) != 0 {
		t.Errorf("bars = %v", got)
	}
}

// TestBarsWiden checks that a class is barred from one instance type first and, when it is refused on another, from the pool.
func TestBarsWiden(t *testing.T) {
	class := builder.Class("a").CPU("1").Obj()
	pods := builder.PodsOf(class, 1)
	pool := builder.CapacityPool("p", shop()).Obj()
	r := plan.Result{Launches: []plan.Launch{{Pool: pool, Pods: pods, Steps: []int{0}, Offerings: pool.Catalog.Offerings}}}
	refusals := []hypothesis.Refusal{{Trial: hypothesis.Trial{Pod: builder.Pod(pods[0].Name).UID(string(pods[0].UID)).Obj()}, Plugin: "F", Reason: "no"}}
	first := bars(&r, refusals, nil)
	if len(first) != 1 || first[0].Class != class || first[0].Pool != "p" || first[0].InstanceType != "m5.xlarge" || first[0].Reason != "F: no" {
		t.Errorf("first bars = %+v, want class a off m5.xlarge of pool p", first)
	}
	if second := bars(&r, refusals, first); len(second) != 1 || second[0].Pool != "p" || second[0].InstanceType != "" {
		t.Errorf("second bars = %+v, want class a off pool p", second)
	}
}
