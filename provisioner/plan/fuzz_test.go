// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/builder"
)

// FuzzSolve plans random clusters with one pod of any requests in them, absurd ones included: a plan keeps its promises
// whatever it is given.
func FuzzSolve(f *testing.F) {
	f.Add(uint64(1), int64(1000), int64(1<<30), int64(0))
	f.Add(uint64(7), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64))
	f.Add(uint64(23), int64(-1), int64(math.MinInt64), int64(-5))
	f.Add(uint64(42), int64(0), int64(0), int64(1))
	f.Add(uint64(99), int64(1_000_000), int64(1), int64(3))
	f.Fuzz(func(t *testing.T, seed uint64, cpu, memory, gpus int64) {
		in := randomInput(seed)
		odd := builder.Class("odd").Obj()
		odd.Requests.CPU, odd.Requests.Memory = cpu, memory
		if gpus != 0 {
			odd.Requests.Extended = []capacity.Quantity{{Name: "nvidia.com/gpu", Value: gpus}}
		}
		in.Pods = append(in.Pods, builder.PodsOf(odd, 2)...)
		r := plan.Solve(in)
		if err := check(in, r); err != nil {
			t.Fatalf("%v\n%v", err, describe(r))
		}
	})
}

// TestSolveManyClasses plans ten thousand classes of one pod, each with a rule of its own: work and memory stay in bounds.
func TestSolveManyClasses(t *testing.T) {
	in := plan.Input{View: &capacity.View{Pools: []*capacity.Pool{builder.CapacityPool("p", shop()).Obj()}}}
	for i := range 10000 {
		app := map[string]string{"app": fmt.Sprint(i)}
		b := builder.Class(fmt.Sprintf("class-%05d", i)).CPU(fmt.Sprintf("%dm", 100+i%1900)).Memory("256Mi").Label("app", app["app"])
		if i%2 == 0 {
			b.ZoneSpread(1, app)
		} else {
			b.Apart(corev1.LabelHostname, app)
		}
		in.Pods = append(in.Pods, builder.PodsOf(b.Obj(), 1)...)
	}
	r := plan.Solve(in)
	if len(r.Unplaced) > 0 {
		t.Errorf("%d pods have no place, the first: %+v", len(r.Unplaced), r.Unplaced[0])
	}
}

// TestSolveBadInput gives what no node can satisfy: every pod gets a reason and nothing is bought.
func TestSolveBadInput(t *testing.T) {
	var values []string
	for i := range 200 {
		values = append(values, fmt.Sprintf("value-%d", i))
	}
	a, b := map[string]string{"app": "a"}, map[string]string{"app": "b"}
	for name, classes := range map[string][]*capacity.Class{
		"contradiction":      {builder.Class("x").CPU("1").Term(capacity.In(corev1.LabelTopologyZone, "a"), capacity.In(corev1.LabelTopologyZone, "b")).Obj()},
		"200 unknown values": {builder.Class("x").CPU("1").Term(capacity.In(corev1.LabelTopologyZone, values...)).Obj()},
		"absurd request":     {builder.Class("x").CPU("9223372036854775807m").Obj()},
		"cyclic affinity": {
			builder.Class("x").CPU("1").Label("app", "a").Near(corev1.LabelTopologyZone, b).Obj(),
			builder.Class("y").CPU("1").Label("app", "b").Near(corev1.LabelTopologyZone, a).Obj(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := plan.Input{View: &capacity.View{Pools: []*capacity.Pool{builder.CapacityPool("p", shop()).Obj()}}}
			for _, c := range classes {
				in.Pods = append(in.Pods, builder.PodsOf(c, 3)...)
			}
			r := plan.Solve(in)
			if len(r.Unplaced) != len(in.Pods) || len(r.Launches) > 0 {
				t.Fatalf("%v", describe(r))
			}
			for _, u := range r.Unplaced {
				if u.Reason == "" || u.Detail == "" || u.Pool != "p" {
					t.Errorf("no reason: %+v", u)
				}
			}
		})
	}
}
