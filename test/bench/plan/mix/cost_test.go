// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package mix_test

import (
	"testing"

	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/bench/plan/bound"
	"github.com/slipway-sh/slipway/test/bench/plan/mix"
)

// TestPlansAreNearTheBound holds plans of mixes whose sizes all pack well together, where the program's fillings are hardest to
// find, to the bound that is known at once: what they would cost if pods could be divided between nodes.
func TestPlansAreNearTheBound(t *testing.T) {
	catalog, err := mix.EC2(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := mix.Maker{Catalog: catalog, Seed: 1}
	for _, tc := range []struct {
		mix         string
		pods, cores int
		want        float64 // price over the bound at most
	}{
		{mix: "synthetic", pods: 2000, cores: 32, want: 1.01},
		{mix: "synthetic", pods: 10000, want: 1.01},
		{mix: "real", pods: 2000, want: 1.02},
	} {
		in, err := m.Make(tc.mix, tc.pods, tc.cores)
		if err != nil {
			t.Fatal(err)
		}
		problem, err := bound.Of(in)
		if err != nil {
			t.Fatal(err)
		}
		known, err := bound.Solve(problem, bound.Options{Time: 1})
		if err != nil {
			t.Fatal(err)
		}
		price := 0.0
		r := plan.Solve(in)
		for i := range r.Launches {
			price += r.Launches[i].Price()
		}
		if ratio := price / known.Divisible; len(r.Unplaced) > 0 || ratio > tc.want {
			t.Errorf("%s, %d pods: the plan costs %.4f times the bound, want %.4f at most; %d pods are not placed", tc.mix, tc.pods, ratio, tc.want, len(r.Unplaced))
		}
	}
}
