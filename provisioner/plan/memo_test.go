// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// A plan is the same with what earlier ones have worked out, also if that was for pools that equal these.
func TestMemo(t *testing.T) {
	said := func(r plan.Result) (out []string) {
		for _, p := range r.Placements {
			out = append(out, fmt.Sprintf("%s on %s", p.Pod.UID, p.Node.ID()))
		}
		for i := range r.Launches {
			l := &r.Launches[i]
			out = append(out, fmt.Sprintf("%s: %d pods, %d offerings, %s at %g", l.Pool.Name, len(l.Pods), len(l.Offerings), l.Offerings[0].Type.Name, l.Price()))
		}
		for _, u := range r.Unplaced {
			out = append(out, fmt.Sprintf("%s: %s %s %s", u.Pod.UID, u.Pool, u.Reason, u.Detail))
		}
		return out
	}
	for seed := range uint64(100) {
		in := randomInput(seed)
		want := said(plan.Solve(in))
		first := plan.NewMemo(in.View.Pools, nil)
		in.Known = first
		if diff := cmp.Diff(want, said(plan.Solve(in))); diff != "" {
			t.Fatalf("seed %d (-without +with a memo):\n%s", seed, diff)
		}
		view := *in.View
		view.Pools = slices.Clone(view.Pools)
		for i, p := range view.Pools {
			q := *p
			view.Pools[i] = &q
		}
		other := *view.Pools[0] // as the first, but in short supply
		if other.Catalog != nil {
			other.Available = capacity.NewSet(len(other.Catalog.Offerings))
		}
		view.Pools = append(view.Pools, &other)
		in.View, in.Known = &view, nil
		want = said(plan.Solve(in))
		in.Known = plan.NewMemo(view.Pools, first)
		if diff := cmp.Diff(want, said(plan.Solve(in))); diff != "" {
			t.Fatalf("seed %d (-without +with a memo of equal pools):\n%s", seed, diff)
		}
	}
}
