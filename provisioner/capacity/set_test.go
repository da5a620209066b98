// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// TestSet compares bit sets with maps, at sizes around the word boundaries.
func TestSet(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 65, 128, 200} {
		r := rand.New(rand.NewPCG(uint64(n), 1))
		a, b := capacity.NewSet(n), capacity.NewSet(n)
		inA, inB := map[int]bool{}, map[int]bool{}
		for i := range n {
			switch r.IntN(4) {
			case 0:
				a.Add(i)
				inA[i] = true
			case 1:
				b.Add(i)
				inB[i] = true
			case 2:
				a.Add(i)
				b.Add(i)
				inA[i], inB[i] = true, true
			}
		}
		pick := func(keep func(i int) bool) (out []int) {
			for i := range n {
				if keep(i) {
					out = append(out, i)
				}
			}
			return out
		}
		for name, tc := range map[string]struct {
			set  capacity.Set
			want []int
		}{
			"a":      {a, pick(func(i int) bool { return inA[i] })},
			"and":    {a.And(b), pick(func(i int) bool { return inA[i] && inB[i] })},
			"or":     {a.Or(b), pick(func(i int) bool { return inA[i] || inB[i] })},
			"andNot": {a.AndNot(b), pick(func(i int) bool { return inA[i] && !inB[i] })},
			"full":   {capacity.FullSet(n), pick(func(int) bool { return true })},
			"none":   {capacity.FullSet(n).AndNot(capacity.FullSet(n)), nil},
		} {
			if diff := cmp.Diff(tc.want, slices.Collect(tc.set.All)); diff != "" {
				t.Errorf("n=%d %s (-want +got):\n%s", n, name, diff)
			}
			first := -1
			if len(tc.want) > 0 {
				first = tc.want[0]
			}
			if tc.set.First() != first || tc.set.Len() != len(tc.want) || tc.set.Empty() != (len(tc.want) == 0) {
				t.Errorf("n=%d %s: first %d, length %d, empty %v; want %v", n, name, tc.set.First(), tc.set.Len(), tc.set.Empty(), tc.want)
			}
		}
		if a.Intersects(b) != !a.And(b).Empty() {
			t.Errorf("n=%d: Intersects = %v", n, a.Intersects(b))
		}
		for i := range n {
			c := a.Or(b)
			c.Remove(i)
			if c.Has(i) || a.Has(i) != inA[i] {
				t.Errorf("n=%d: %d is in the set after Remove: %v, in a: %v", n, i, c.Has(i), a.Has(i))
			}
		}
		for range a.All {
			break // a loop may stop early
		}
	}
}
