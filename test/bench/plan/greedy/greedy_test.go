// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package greedy_test

import (
	"testing"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/bench/plan/bound"
	"github.com/slipway-sh/slipway/test/bench/plan/greedy"
)

func shape(price float64, room ...int64) bound.Shape {
	return bound.Shape{Price: price, Room: room, Takes: capacity.FullSet(1)}
}

// TestBaselines checks both baselines on inputs small enough to follow by hand.
func TestBaselines(t *testing.T) {
	for _, c := range []struct {
		name               string
		p                  bound.Problem
		karpenter, largest greedy.Plan
	}{
		{
			"one node takes all, bought no larger than needed",
			bound.Problem{Items: []bound.Item{{Size: []int64{2}, Count: 2}}, Shapes: []bound.Shape{shape(1, 2), shape(2, 4), shape(9, 16)}},
			greedy.Plan{Price: 2, Nodes: 1},
			greedy.Plan{Price: 2, Nodes: 1},
		},
		{
			"the dear large node is used although two small ones are cheaper",
			bound.Problem{Items: []bound.Item{{Size: []int64{2}, Count: 2}}, Shapes: []bound.Shape{shape(1, 2), shape(3, 4)}},
			greedy.Plan{Price: 3, Nodes: 1},
			greedy.Plan{Price: 3, Nodes: 1},
		},
		{
			"large pods fill one node, which Karpenter's rule leaves for the one with fewer pods only when there are two",
			bound.Problem{Items: []bound.Item{{Size: []int64{3}, Count: 2}, {Size: []int64{1}, Count: 2}}, Shapes: []bound.Shape{shape(4, 4)}},
			greedy.Plan{Price: 8, Nodes: 2},
			greedy.Plan{Price: 8, Nodes: 2},
		},
		{
			"one pod of a group a node",
			bound.Problem{Items: []bound.Item{{Size: []int64{1}, Count: 3, Groups: []int{0}}}, Caps: []int64{1}, Shapes: []bound.Shape{shape(1, 1), shape(2, 4)}},
			greedy.Plan{Price: 3, Nodes: 3},
			greedy.Plan{Price: 3, Nodes: 3},
		},
	} {
		if got := greedy.Karpenter(c.p); got != c.karpenter {
			t.Errorf("%s: Karpenter's way %+v, want %+v", c.name, got, c.karpenter)
		}
		if got := greedy.Largest(c.p); got != c.largest {
			t.Errorf("%s: largest first %+v, want %+v", c.name, got, c.largest)
		}
	}
}
