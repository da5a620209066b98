// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package fidelity

import (
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

// conjunction is some selectors, read by both sides.
type conjunction struct {
	selectors []corev1.NodeSelectorRequirement
	ours      capacity.Requirements
	theirs    scheduling.Requirements
}

func (m *maker) conjunction(t *testing.T) conjunction {
	t.Helper()
	var c conjunction
	for range 1 + m.IntN(3) {
		c.selectors = append(c.selectors, m.karpenterSelector())
	}
	ours, err := capacity.FromSelectors(c.selectors)
	if err != nil {
		t.Fatalf("%v: %v", c.selectors, err)
	}
	c.ours, c.theirs = ours, scheduling.NewNodeSelectorRequirements(c.selectors...)
	return c
}

// karpenterSelector is a requirement as NodePools and pods have it, old keys included.
func (m *maker) karpenterSelector() corev1.NodeSelectorRequirement {
	key := pick(m, "team", "team", "gen", corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone, corev1.LabelArchStable, "beta.kubernetes.io/arch")
	switch op := pick(m, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist,
		corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt, capacity.OpGte, capacity.OpLte); op {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		return builder.Requirement(key, op, m.value(), m.value())
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		return builder.Requirement(key, op)
	default:
		return builder.Requirement(key, op, strconv.Itoa(m.IntN(7)))
	}
}

// presenceMatters reports whether the conjunction is one on which the two differ on purpose: Karpenter forgets that a
// label has to be there once the operators that say so have been merged with NotIn, or have left no value.
func presenceMatters(c capacity.Requirements) bool {
	for _, q := range c {
		op := q.Operator()
		if !q.AllowsAbsent() && (op == corev1.NodeSelectorOpNotIn || op == corev1.NodeSelectorOpDoesNotExist) {
			return true
		}
	}
	return false
}

// TestFidelityOfRequirements compares conjunctions of selectors, value by value, and the compatibility of pairs of them.
func TestFidelityOfRequirements(t *testing.T) {
	m := newMaker(seed(t))
	values := []string{"", "x", "y", "0", "1", "2", "3", "4", "5", "6", "7", "05"}
	var compared, compatible, deliberate uint64
	for ; compared < pairs(t) && !t.Failed(); compared++ {
		a, b := m.conjunction(t), m.conjunction(t)
		both := a.ours.And(b.ours)
		theirs := scheduling.NewRequirements(append(a.theirs.Values(), b.theirs.Values()...)...)
		if got, want := both.Keys(), slices.Sorted(slices.Values(theirs.Keys().UnsortedList())); !slices.Equal(got, want) {
			t.Errorf("pair %d: %v and %v: keys %v, Karpenter %v", compared, a.selectors, b.selectors, got, want)
		}
		for _, key := range both.Keys() {
			ours, their := both[key], theirs.Get(key)
			for _, v := range values {
				if ours.Has(v) != their.Has(v) {
					t.Errorf("pair %d: %v and %v: %q on %s: %v, Karpenter %v", compared, a.selectors, b.selectors, v, key, ours.Has(v), their.Has(v))
				}
			}
			if ours.Operator() != their.Operator() {
				t.Errorf("pair %d: %v and %v: operator on %s: %s, Karpenter %s", compared, a.selectors, b.selectors, key, ours.Operator(), their.Operator())
			}
			if !ours.Impossible() && ours.String() != their.String() {
				t.Errorf("pair %d: %s, Karpenter %s", compared, ours, their)
			}
		}
		ok := a.ours.Compatible(b.ours, nil) == nil
		want := a.theirs.Compatible(b.theirs) == nil
		switch {
		case ok && want:
			compatible++
		case ok == want:
		case want && (presenceMatters(a.ours) || presenceMatters(b.ours)):
			deliberate++
		default:
			t.Errorf("pair %d: pool %v, pod %v: compatible %v, Karpenter %v", compared, a.selectors, b.selectors, ok, want)
		}
	}
	if compatible*20 < compared || deliberate*5 > compared {
		t.Errorf("of %d pairs %d are compatible and %d differ for the listed reason: the generator has lost its subject", compared, compatible, deliberate)
	}
	t.Logf("compared %d pairs of requirement sets: %d compatible, %d differ because a label has to be there", compared, compatible, deliberate)
}

// TestFidelityDifferencesFromKarpenter shows the one way in which the algebra differs, in its smallest forms. A pod of
// the first kind would have Karpenter buy a node that the scheduler never uses for it.
func TestFidelityDifferencesFromKarpenter(t *testing.T) {
	for name, tc := range map[string]struct {
		pool, pod []corev1.NodeSelectorRequirement
	}{
		"there, but not that value": {pod: []corev1.NodeSelectorRequirement{builder.Requirement("team", corev1.NodeSelectorOpExists), builder.NotIn("team", "x")}},
		"a range without one value": {pod: []corev1.NodeSelectorRequirement{builder.Requirement("gen", corev1.NodeSelectorOpGt, "4"), builder.NotIn("gen", "6")}},
		"two values at once":        {pod: []corev1.NodeSelectorRequirement{builder.In("team", "x"), builder.In("team", "y")}},
		"an empty range":            {pod: []corev1.NodeSelectorRequirement{builder.Requirement("gen", corev1.NodeSelectorOpGt, "4"), builder.Requirement("gen", corev1.NodeSelectorOpLt, "5")}},
	} {
		t.Run(name, func(t *testing.T) {
			pool, err := capacity.FromSelectors(tc.pool)
			if err != nil {
				t.Fatal(err)
			}
			pod, err := capacity.FromSelectors(tc.pod)
			if err != nil {
				t.Fatal(err)
			}
			node := builder.Node("n").Obj()
			onNode := newStock(t).fits(t.Context(), builder.Pod("p").NodeAffinity(tc.pod...).Obj(), []*corev1.Node{node}, nil)["n"]
			if onNode == "" {
				t.Error("the scheduler takes the pod on a node without the label")
			}
			if m := pool.Compatible(pod, nil); m == nil {
				t.Error("compatible")
			}
			if err := scheduling.NewNodeSelectorRequirements(tc.pool...).Compatible(scheduling.NewNodeSelectorRequirements(tc.pod...)); err != nil {
				t.Errorf("Karpenter does not differ (any more): %v", err)
			}
		})
	}
}
