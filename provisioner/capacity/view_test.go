// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity_test

import (
	"testing"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

func TestNodeMeets(t *testing.T) {
	decided := builder.CapacityNode("n1").Label("team", "x").Obj()
	open := builder.CapacityNode("n2").Planned(capacity.In("zone", "a", "b"), capacity.Exists("rack"), capacity.DoesNotExist("gpu")).Obj()
	for name, tc := range map[string]struct {
		node *capacity.Node
		term capacity.Requirements
		want bool
	}{
		"nothing asked":                        {decided, nil, true},
		"a label":                              {decided, capacity.NewRequirements(capacity.In("team", "x")), true},
		"another value":                        {decided, capacity.NewRequirements(capacity.In("team", "y")), false},
		"a label it lacks":                     {decided, capacity.NewRequirements(capacity.Exists("gpu")), false},
		"not a value of a label it lacks":      {decided, capacity.NewRequirements(not(t, "gpu", "t4")), true},
		"its name":                             {decided, capacity.NewRequirements(capacity.In(capacity.NodeNameField, "n1")), true},
		"another name":                         {decided, capacity.NewRequirements(capacity.In(capacity.NodeNameField, "n2")), false},
		"not its name":                         {decided, capacity.NewRequirements(not(t, capacity.NodeNameField, "n1")), false},
		"a name, before there is one":          {open, capacity.NewRequirements(capacity.In(capacity.NodeNameField, "n2")), false},
		"not a name, before there is one":      {open, capacity.NewRequirements(not(t, capacity.NodeNameField, "n1")), true},
		"all values it may get":                {open, capacity.NewRequirements(capacity.In("zone", "a", "b", "c")), true},
		"one of the values it may get":         {open, capacity.NewRequirements(capacity.In("zone", "a")), false},
		"no value it may get":                  {open, capacity.NewRequirements(not(t, "zone", "c")), true},
		"a value of a label that may be any":   {open, capacity.NewRequirements(capacity.In("rack", "1")), false},
		"a label it will not have":             {open, capacity.NewRequirements(capacity.Exists("gpu")), false},
		"the absence of a label it won't have": {open, capacity.NewRequirements(capacity.DoesNotExist("gpu")), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.node.Meets(tc.term); got != tc.want {
				t.Errorf("Meets(%s) = %v, want %v", tc.term, got, tc.want)
			}
		})
	}
}

func TestNameMismatch(t *testing.T) {
	m := capacity.Requirements{}.Compatible(capacity.NewRequirements(capacity.In(capacity.NodeNameField, "n1")), nil)
	if want := "the pod names its node (matchFields, metadata.name in [n1]), a new node has another name"; m == nil || m.Error() != want {
		t.Errorf("mismatch = %v, want %q", m, want)
	}
}
