// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"math"
	"runtime"
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
	f.Add(uint64(506), int64(839), int64(1<<30), int64(91)) // a zone with none but a node that a class's affinity refuses
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

// TestWorkStaysInProportion plans input made to be laborious, once and with twice as many classes: every pod has a place or a
// reason, and what is allocated on the way, which unlike time is the same on any machine, grows no faster than it may.
func TestWorkStaysInProportion(t *testing.T) {
	app := func(i int) map[string]string { return map[string]string{"app": fmt.Sprint(i)} }
	named := func(i int) *builder.ClassBuilder {
		return builder.Class(fmt.Sprintf("class-%05d", i)).CPU(fmt.Sprintf("%dm", 100+i%1900)).Memory("256Mi").Label("app", fmt.Sprint(i)).Label("all", "yes")
	}
	everybody := map[string]string{"all": "yes"}
	for name, tc := range map[string]struct {
		classes int
		most    float64 // how much more twice as many classes may allocate
		placed  bool
		class   func(i, n int) *capacity.Class
	}{
		"a rule of its own for each": {classes: 5000, most: 3, placed: true, class: func(i, _ int) *capacity.Class {
			if i%2 == 0 {
				return named(i).ZoneSpread(1, app(i)).Obj()
			}
			return named(i).Apart(corev1.LabelHostname, app(i)).Obj()
		}},
		"200 values for a label that is left open": {classes: 500, most: 3, placed: true, class: func(i, _ int) *capacity.Class {
			var values []string
			for k := range 200 {
				values = append(values, fmt.Sprintf("team-%d", (i+1)*k))
			}
			return named(i).Term(capacity.In("team", values...)).Obj()
		}},
		"everybody wants to be apart from everybody": {classes: 300, most: 5, placed: true, class: func(i, _ int) *capacity.Class {
			return named(i).Apart(corev1.LabelHostname, everybody).Obj()
		}},
		"affinities in a circle, over hosts": {classes: 500, most: 5, class: func(i, n int) *capacity.Class {
			return named(i).Near(corev1.LabelHostname, app((i+1)%n)).Obj()
		}},
		"affinities in a circle, over zones": {classes: 500, most: 5, class: func(i, n int) *capacity.Class {
			return named(i).Near(corev1.LabelTopologyZone, app((i+1)%n)).Obj()
		}},
		"absurd requests": {classes: 1000, most: 3, class: func(i, _ int) *capacity.Class {
			c := named(i).Obj()
			c.Requests.CPU, c.Requests.Memory = math.MaxInt64-int64(i), math.MaxInt64-int64(i)
			c.Requests.Extended = []capacity.Quantity{{Name: "example.com/x", Value: math.MaxInt64}}
			return c
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var allocated [2]float64
			for k := range allocated {
				in := plan.Input{View: &capacity.View{Pools: []*capacity.Pool{builder.CapacityPool("p", shop()).Require(capacity.Exists("team")).Obj()}}}
				n := tc.classes * (k + 1)
				for i := range n {
					in.Pods = append(in.Pods, builder.PodsOf(tc.class(i, n), 1)...)
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				r := plan.Solve(in)
				runtime.ReadMemStats(&after)
				allocated[k] = float64(after.TotalAlloc - before.TotalAlloc)
				if placed := len(r.Unplaced) == 0; placed != tc.placed {
					t.Errorf("%d of %d pods have no place", len(r.Unplaced), len(in.Pods))
				}
				for _, u := range r.Unplaced {
					if u.Reason == "" || u.Detail == "" {
						t.Fatalf("no reason: %+v", u)
					}
				}
			}
			if growth := allocated[1] / allocated[0]; growth > tc.most {
				t.Errorf("twice as many classes allocate %.1f times as much (%.0f MB instead of %.0f)", growth, allocated[1]/1e6, allocated[0]/1e6)
			}
		})
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
