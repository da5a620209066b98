// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

func TestDrawIsADayOfTheCoresAskedFor(t *testing.T) {
	const seconds, cores = 24 * 3600, 600
	for seed := range uint64(3) {
		d := draw(seed, seconds, cores)
		if again := draw(seed, seconds, cores); !cmp.Equal(d.arrivals, again.arrivals) {
			t.Errorf("seed %d: two days differ", seed)
		}
		if !slices.IsSortedFunc(d.arrivals, func(a, b arrival) int { return a.At - b.At }) {
			t.Errorf("seed %d: pods do not come in order", seed)
		}
		used := 0.0
		for _, a := range d.arrivals {
			if a.At < 0 || a.At >= seconds || a.Life < 1 {
				t.Fatalf("seed %d: pod %+v", seed, a)
			}
			used += float64(min(a.Life, seconds-a.At)) * d.kinds[a.Kind].cores / seconds
		}
		if math.Abs(used-cores) > 0.1*cores {
			t.Errorf("seed %d: pods ask for %.0f cores on average, want about %d", seed, used, cores)
		}
	}
}

// A day whose bill can be made by hand: one size of node for a dollar an hour, which holds two of the pods.
func TestLive(t *testing.T) {
	o := options{step: 10, every: 60, boot: 60, scoring: leastAllocated}
	size := builder.InstanceType("m5.large").CPU("2").Memory("8Gi").OnDemand(1, "zone-a").Obj()
	pool := builder.CapacityPool("default", capacity.NewCatalog([]*capacity.InstanceType{size})).
		Require(capacity.In(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeOnDemand)).Obj()
	kinds := []kind{{builder.Class("half").CPU("900m").Memory("1Gi").Obj(), 0.9}}
	for name, tc := range map[string]struct {
		arrivals []arrival
		want     answer
	}{
		"one pod for an hour":     {[]arrival{{0, 3600, 0}}, answer{Dollars: 1, Nodes: 1, Bought: 1, Late: 1}},
		"a second pod finds room": {[]arrival{{0, 3600, 0}, {1800, 1800, 0}}, answer{Dollars: 1, Nodes: 1, Bought: 1, Late: 1}},
		"a third one does not":    {[]arrival{{0, 3600, 0}, {0, 3600, 0}, {1800, 1800, 0}}, answer{Dollars: 1.5, Nodes: 1.5, Bought: 2, Late: 3}},
		"an empty node goes":      {[]arrival{{0, 1800, 0}}, answer{Dollars: 0.5, Nodes: 0.5, Bought: 1, Removed: 1, Late: 1}},
		"half-empty nodes become one, in time": {
			// Full nodes of two from 0 on; one pod of each ends after 10 minutes, when the nodes are old enough. One pod moves.
			[]arrival{{0, 600, 0}, {0, 3600, 0}, {10, 590, 0}, {10, 3590, 0}}, answer{Dollars: 1 + 600.0/3600, Nodes: 1 + 600.0/3600, Bought: 2, Removed: 1, Evictions: 1, Late: 4},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := live(&day{seconds: 3600, kinds: kinds, arrivals: tc.arrivals}, pool, o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(answer{}, "Seconds"), cmpopts.EquateApprox(0, 0.03)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
