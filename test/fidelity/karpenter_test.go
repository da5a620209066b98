// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package fidelity

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

// conjunction is some selectors, read by both sides.
type conjunction struct {
	selectors []karpv1.NodeSelectorRequirementWithMinValues
	ours      capacity.Requirements
	theirs    scheduling.Requirements
}

func (m *maker) conjunction(t *testing.T) conjunction {
	t.Helper()
	var c conjunction
	for range m.IntN(5) {
		c.selectors = append(c.selectors, m.karpenterSelector())
	}
	c.read(t)
	return c
}

func (c *conjunction) read(t *testing.T) {
	t.Helper()
	c.ours = capacity.Requirements{}
	for _, s := range c.selectors {
		q, err := capacity.NewRequirement(s.Key, s.Operator, s.Values...)
		if err != nil {
			t.Fatalf("%v: %v", c.selectors, err)
		}
		if s.MinValues != nil {
			q.MinValues = *s.MinValues
		}
		c.ours = c.ours.With(q)
	}
	c.theirs = scheduling.NewNodeSelectorRequirementsWithMinValues(c.selectors...)
}

// karpenterKeys are labels people set, every key that is read as another, and labels Karpenter knows.
func karpenterKeys() []string {
	return []string{
		"team", "team", "team", "gen", "gen", corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone, "topology.ebs.csi.aws.com/zone", corev1.LabelTopologyRegion,
		corev1.LabelFailureDomainBetaRegion, corev1.LabelArchStable, "beta.kubernetes.io/arch", corev1.LabelOSStable, "beta.kubernetes.io/os",
		corev1.LabelInstanceTypeStable, corev1.LabelInstanceType, karpv1.CapacityTypeLabelKey, karpv1.NodePoolLabelKey, "karpenter.k8s.aws/instance-generation",
		corev1.LabelWindowsBuild, corev1.LabelHostname,
	}
}

// karpenterValues meet each other often; some look like numbers and are none, some are not written as numbers are.
func karpenterValues() []string {
	return []string{"", "x", "y", "0", "1", "2", "3", "4", "5", "6", "7", "05", "+5", "-1", "1.5", "0x3", "٣", "9223372036854775807", "9223372036854775808"}
}

// karpenterSelector is a requirement as NodePools and pods have it.
func (m *maker) karpenterSelector() karpv1.NodeSelectorRequirementWithMinValues {
	out := karpv1.NodeSelectorRequirementWithMinValues{
		Key: pick(m, karpenterKeys()...),
		Operator: pick(m, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist,
			corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt, capacity.OpGte, capacity.OpLte),
	}
	switch out.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		for range 1 + m.IntN(4) {
			out.Values = append(out.Values, pick(m, karpenterValues()...))
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
	default:
		n := m.IntN(8)
		if m.one(200) {
			n = math.MaxInt64
		}
		out.Values = []string{strconv.Itoa(n)}
	}
	if m.one(6) {
		out.MinValues = new(1 + m.IntN(5))
	}
	return out
}

// withAliases makes Karpenter read the keys that its AWS provider adds when it starts.
func withAliases(t *testing.T) {
	t.Helper()
	standard := karpv1.NormalizedLabels
	karpv1.NormalizedLabels = maps.Clone(standard)
	karpv1.NormalizedLabels["topology.ebs.csi.aws.com/zone"] = corev1.LabelTopologyZone
	t.Cleanup(func() { karpv1.NormalizedLabels = standard })
}

// karpenterDifference is a way in which the two algebras do not agree, on purpose. All of them refuse what Karpenter takes: a
// node bought for such a pod would never be used for it.
type karpenterDifference struct {
	name, why string
	explains  func(capacity.Requirement) bool
	pool, pod []corev1.NodeSelectorRequirement
}

func karpenterDifferences() []karpenterDifference {
	wanted := func(q capacity.Requirement) bool {
		return !q.AllowsAbsent() && q.Operator() == corev1.NodeSelectorOpNotIn
	}
	return []karpenterDifference{
		{
			name: "there, but not that value", why: "Exists and NotIn together want the label: Karpenter keeps NotIn, which a node without the label satisfies",
			explains: wanted, pod: []corev1.NodeSelectorRequirement{builder.Requirement("team", corev1.NodeSelectorOpExists), builder.NotIn("team", "x")},
		},
		{
			name: "a range without one value", why: "a bound wants the label, and so it does beside NotIn",
			explains: wanted, pod: []corev1.NodeSelectorRequirement{builder.Requirement("gen", corev1.NodeSelectorOpGt, "4"), builder.NotIn("gen", "6")},
		},
		{
			name: "two values at once", why: "nothing has two values: Karpenter makes DoesNotExist of it, which a node without the label satisfies",
			explains: capacity.Requirement.Impossible, pod: []corev1.NodeSelectorRequirement{builder.In("team", "x"), builder.In("team", "y")},
		},
		{
			name: "an empty range", why: "the same of bounds that cross",
			explains: capacity.Requirement.Impossible,
			pod:      []corev1.NodeSelectorRequirement{builder.Requirement("gen", corev1.NodeSelectorOpGt, "4"), builder.Requirement("gen", corev1.NodeSelectorOpLt, "5")},
		},
		{
			name: "beyond the last integer", why: "the same of a bound that nothing reaches",
			explains: capacity.Requirement.Impossible, pod: []corev1.NodeSelectorRequirement{builder.Requirement("gen", corev1.NodeSelectorOpGt, "9223372036854775807")},
		},
	}
}

// explained reports whether a listed difference may be seen on one of the conjunctions.
func explained(in ...capacity.Requirements) bool {
	for _, c := range in {
		for _, q := range c {
			if slices.ContainsFunc(karpenterDifferences(), func(d karpenterDifference) bool { return d.explains(q) }) {
				return true
			}
		}
	}
	return false
}

// algebra counts what was compared.
type algebra struct{ compared, compatible, deliberate uint64 }

// TestFidelityOfRequirements compares conjunctions of selectors, value by value, and what is said of pairs of them, once
// with the labels Karpenter knows left undefined and once without that allowance.
func TestFidelityOfRequirements(t *testing.T) {
	withAliases(t)
	m := newMaker(seed(t))
	var y algebra
	for ; y.compared < pairs(t) && !t.Failed(); y.compared++ {
		a, b := m.conjunction(t), m.conjunction(t)
		y.conjunctions(t, a, b)
		y.verdict(t, a, b, "compatible", a.ours.Compatible(b.ours, nil), a.theirs.Compatible(b.theirs))
		y.verdict(t, a, b, "compatible with undefined well-known labels",
			a.ours.Compatible(b.ours, karpv1.WellKnownLabels.Has), a.theirs.Compatible(b.theirs, scheduling.AllowUndefinedWellKnownLabels))
		y.verdict(t, a, b, "overlapping", a.ours.Overlaps(b.ours), a.theirs.Intersects(b.theirs))
	}
	if verdicts := 3 * y.compared; y.compatible*10 < verdicts || y.compatible*10 > verdicts*9 || y.deliberate*10 > verdicts {
		t.Errorf("of %d verdicts %d are yes and %d differ for a listed reason: the generator has lost its subject", verdicts, y.compatible, y.deliberate)
	}
	t.Logf("compared %d pairs of requirement sets, %d verdicts: %d are yes, %d differ for a listed reason", y.compared, 3*y.compared, y.compatible, y.deliberate)
}

// conjunctions compares a ∧ b.
func (y *algebra) conjunctions(t *testing.T, a, b conjunction) {
	t.Helper()
	both := a.ours.And(b.ours)
	theirs := scheduling.NewRequirements(append(a.theirs.Values(), b.theirs.Values()...)...)
	if got, want := both.Keys(), slices.Sorted(slices.Values(theirs.Keys().UnsortedList())); !slices.Equal(got, want) {
		t.Errorf("pair %d: %v and %v: keys %v, Karpenter %v", y.compared, a.selectors, b.selectors, got, want)
	}
	for _, key := range append(both.Keys(), "undefined") {
		ours, their := both.Get(key), theirs.Get(key)
		for _, v := range karpenterValues() {
			if ours.Has(v) != their.Has(v) {
				t.Errorf("pair %d: %v and %v: %q on %s: %v, Karpenter %v", y.compared, a.selectors, b.selectors, v, key, ours.Has(v), their.Has(v))
			}
		}
		if ours.Operator() != their.Operator() {
			t.Errorf("pair %d: %v and %v: operator on %s: %s, Karpenter %s", y.compared, a.selectors, b.selectors, key, ours.Operator(), their.Operator())
		}
		if !ours.Impossible() && ours.String() != their.String() {
			t.Errorf("pair %d: %s, Karpenter %s", y.compared, ours, their)
		}
	}
	y.written(t, both)
}

// written checks that what a NodeClaim carries of the requirements is to Karpenter what they are, value by value.
func (y *algebra) written(t *testing.T, both capacity.Requirements) {
	t.Helper()
	for _, q := range both {
		read := scheduling.NewNodeSelectorRequirements(q.Selectors()...)
		for _, v := range karpenterValues() {
			if read.Get(q.Key).Has(v) != q.Has(v) {
				t.Errorf("pair %d: %s is written as %v, of which Karpenter says %v about %q", y.compared, q, q.Selectors(), !q.Has(v), v)
			}
		}
	}
}

// verdict compares what is said of a pool and a pod.
func (y *algebra) verdict(t *testing.T, a, b conjunction, what string, ours *capacity.Mismatch, theirs error) {
	t.Helper()
	switch {
	case ours == nil && theirs == nil:
		y.compatible++
	case ours != nil && theirs != nil:
		if message := theirs.Error(); ours.Offered.Key != "" && strings.HasPrefix(message, "key ") && !strings.Contains(message, ours.Key) && !explained(a.ours, b.ours) {
			t.Errorf("pair %d: pool %v, pod %v: %s, Karpenter says %s", y.compared, a.selectors, b.selectors, ours.Error(), message)
		}
	case theirs == nil && explained(a.ours, b.ours):
		y.deliberate++
	default:
		t.Errorf("pair %d: pool %v, pod %v: %s: %v, Karpenter %v", y.compared, a.selectors, b.selectors, what, ours == nil, theirs == nil)
	}
}

// TestFidelityDifferencesFromKarpenter shows each way in which the algebra differs, in its smallest form: the scheduler does
// not take the pod on a node without the label.
func TestFidelityDifferencesFromKarpenter(t *testing.T) {
	for _, d := range karpenterDifferences() {
		t.Run(d.name, func(t *testing.T) {
			pool, err := capacity.FromSelectors(d.pool)
			if err != nil {
				t.Fatal(err)
			}
			pod, err := capacity.FromSelectors(d.pod)
			if err != nil {
				t.Fatal(err)
			}
			onNode := newStock(t).fits(t.Context(), builder.Pod("p").NodeAffinity(d.pod...).Obj(), []*corev1.Node{builder.Node("n").Obj()}, nil)["n"]
			if onNode == "" {
				t.Error("the scheduler takes the pod on a node without the label")
			}
			if m := pool.Compatible(pod, nil); m == nil {
				t.Error("compatible")
			}
			if err := scheduling.NewNodeSelectorRequirements(d.pool...).Compatible(scheduling.NewNodeSelectorRequirements(d.pod...)); err != nil {
				t.Errorf("Karpenter does not differ (any more): %v", err)
			}
			if !explained(pod) {
				t.Error("the difference does not explain its own example")
			}
		})
	}
}
