// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

func TestCompatible(t *testing.T) {
	wellKnown := func(key string) bool { return key == corev1.LabelTopologyZone }
	for name, tc := range map[string]struct {
		pool, pod capacity.Requirements
		want      string // the mismatch, "" for none
	}{
		"nothing asked":                   {pool: capacity.NewRequirements(capacity.In("k", "a"))},
		"values overlap":                  {pool: capacity.NewRequirements(capacity.In("k", "a", "b")), pod: capacity.NewRequirements(capacity.In("k", "b", "c"))},
		"values differ":                   {pool: capacity.NewRequirements(capacity.In("k", "a")), pod: capacity.NewRequirements(capacity.In("k", "b")), want: "wanted k In [b], offered k In [a]"},
		"pool leaves the value open":      {pool: capacity.NewRequirements(capacity.Exists("k")), pod: capacity.NewRequirements(capacity.In("k", "b"))},
		"undefined key":                   {pod: capacity.NewRequirements(capacity.In("k", "b")), want: `label "k" is not defined (wanted k In [b])`},
		"undefined key that must exist":   {pod: capacity.NewRequirements(capacity.Exists("k")), want: `label "k" is not defined (wanted k Exists)`},
		"undefined key that must not":     {pod: capacity.NewRequirements(capacity.DoesNotExist("k"))},
		"undefined key, other than":       {pod: capacity.NewRequirements(not(t, "k", "a"))},
		"there, but not that value":       {pod: capacity.NewRequirements(not(t, "k", "a"), capacity.Exists("k")), want: `label "k" is not defined (wanted k NotIn [a])`},
		"well-known key":                  {pod: capacity.NewRequirements(capacity.In(corev1.LabelTopologyZone, "z"))},
		"alias of a well-known key":       {pod: capacity.NewRequirements(capacity.In(corev1.LabelFailureDomainBetaZone, "z"))},
		"both accept absence":             {pool: capacity.NewRequirements(capacity.DoesNotExist("k")), pod: capacity.NewRequirements(not(t, "k", "a"))},
		"pool has it, pod wants none":     {pool: capacity.NewRequirements(capacity.In("k", "a")), pod: capacity.NewRequirements(capacity.DoesNotExist("k")), want: "wanted k DoesNotExist, offered k In [a]"},
		"the pod contradicts itself":      {pool: capacity.NewRequirements(capacity.Exists("k")), pod: capacity.NewRequirements(capacity.In("k", "a"), capacity.In("k", "b")), want: "no node satisfies the pod: k with no possible value"},
		"the first of several mismatches": {pool: capacity.NewRequirements(capacity.In("a", "1"), capacity.In("b", "1")), pod: capacity.NewRequirements(capacity.In("b", "2"), capacity.In("a", "2")), want: "wanted a In [2], offered a In [1]"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if m := tc.pool.Compatible(tc.pod, wellKnown); m != nil {
				got = m.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func not(t *testing.T, key string, values ...string) capacity.Requirement {
	t.Helper()
	r, err := capacity.NewRequirement(key, opNotIn, values...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestMatchesLabels(t *testing.T) {
	zone := capacity.NewRequirements(capacity.In(corev1.LabelTopologyZone, "a"))
	for name, tc := range map[string]struct {
		reqs   capacity.Requirements
		labels map[string]string
		want   bool
	}{
		"nothing asked":                    {nil, nil, true},
		"value there":                      {zone, map[string]string{corev1.LabelTopologyZone: "a"}, true},
		"label missing":                    {zone, nil, false},
		"only under an old name":           {zone, map[string]string{corev1.LabelFailureDomainBetaZone: "a"}, true},
		"the stable name decides":          {zone, map[string]string{corev1.LabelTopologyZone: "b", corev1.LabelFailureDomainBetaZone: "a"}, false},
		"the driver's name before the old": {zone, map[string]string{"topology.ebs.csi.aws.com/zone": "a", corev1.LabelFailureDomainBetaZone: "b"}, true},
		"absence accepted":                 {capacity.NewRequirements(not(t, "k", "a")), nil, true},
		"absence not accepted":             {capacity.NewRequirements(not(t, "k", "a"), capacity.Exists("k")), nil, false},
		"contradiction":                    {capacity.NewRequirements(capacity.In("k", "a"), capacity.In("k", "b")), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.reqs.MatchesLabels(tc.labels); got != tc.want {
				t.Errorf("MatchesLabels = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestRequirementsAreNotModified(t *testing.T) {
	r := capacity.NewRequirements(capacity.In("k", "a", "b"))
	with, and := r.With(capacity.In("k", "a"), capacity.Exists("l")), r.And(capacity.NewRequirements(capacity.In("k", "b")))
	for _, tc := range []struct{ got, want string }{
		{r.String(), "k In [a b]"},
		{with.String(), "k In [a], l Exists"},
		{and.String(), "k In [b]"},
		{capacity.Requirements(nil).With(capacity.Exists("k")).String(), "k Exists"},
		{capacity.Requirements(nil).And(r).String(), "k In [a b]"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
	if got := r.Get("other"); !got.Has("x") || !got.AllowsAbsent() {
		t.Errorf("an unconstrained key is %s, which does not allow everything", got)
	}
}

// values are what labels may hold: words, integers, and what looks like integers.
func universe() []string {
	out := []string{"", "a", "b", "c", "007", "+5", "1.5", "9223372036854775807", "-9223372036854775808", "9223372036854775808"}
	for i := -2; i <= 9; i++ {
		out = append(out, strconv.Itoa(i))
	}
	return out
}

// holds evaluates one selector on one label value as the API documents it.
func holds(s corev1.NodeSelectorRequirement, value string, present bool) bool {
	switch s.Operator {
	case opIn:
		return present && slices.Contains(s.Values, value)
	case opNotIn:
		return !present || !slices.Contains(s.Values, value)
	case opExists:
		return present
	case opAbsent:
		return !present
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if !present || err != nil {
		return false
	}
	bound, _ := strconv.ParseInt(s.Values[0], 10, 64)
	switch s.Operator {
	case opGt:
		return n > bound
	case opLt:
		return n < bound
	case capacity.OpGte:
		return n >= bound
	default:
		return n <= bound
	}
}

func randomSelector(r *rand.Rand) corev1.NodeSelectorRequirement {
	ops := []corev1.NodeSelectorOperator{opIn, opIn, opNotIn, opNotIn, opExists, opAbsent, opGt, opLt, capacity.OpGte, capacity.OpLte}
	op, all := ops[r.IntN(len(ops))], universe()
	s := is(op)
	switch op {
	case opIn, opNotIn:
		for range 1 + r.IntN(4) {
			s.Values = append(s.Values, all[r.IntN(len(all))])
		}
	case opExists, opAbsent:
	default:
		s.Values = []string{strconv.Itoa(r.IntN(10) - 1)}
	}
	return s
}

// TestAlgebraAgreesWithDefinition checks conjunctions of random selectors against their definition, value by value.
func TestAlgebraAgreesWithDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	for n := range 20000 {
		var left, right []corev1.NodeSelectorRequirement
		for range 1 + r.IntN(3) {
			left, right = append(left, randomSelector(r)), append(right, randomSelector(r))
		}
		a, b := req(t, left...), req(t, right...)
		both, common := a.Intersect(b), false
		all := slices.Concat(left, right)
		for _, v := range universe() {
			want := !slices.ContainsFunc(all, func(s corev1.NodeSelectorRequirement) bool { return !holds(s, v, true) })
			if got := both.Has(v); got != want {
				t.Fatalf("case %d: %v: Has(%q) = %v, want %v", n, all, v, got, want)
			}
			common = common || want
		}
		absent := !slices.ContainsFunc(all, func(s corev1.NodeSelectorRequirement) bool { return !holds(s, "", false) })
		if got := both.AllowsAbsent(); got != absent {
			t.Fatalf("case %d: %v: AllowsAbsent() = %v, want %v", n, all, got, absent)
		}
		if common && !a.Intersects(b) {
			t.Fatalf("case %d: %v: Intersects = false, but there is a common value", n, all)
		}
		if both.Finite() && a.Intersects(b) != (len(both.Values()) > 0) {
			t.Fatalf("case %d: %v: Intersects = %v, but the intersection is %s", n, all, a.Intersects(b), both)
		}
		if back := req(t, both.Selectors()...); back.String() != both.String() || back.AllowsAbsent() != both.AllowsAbsent() {
			t.Fatalf("case %d: %s reads back as %s from %v", n, both, back, both.Selectors())
		}
		if rev := b.Intersect(a); rev.String() != both.String() {
			t.Fatalf("case %d: a∧b = %s, b∧a = %s", n, both, rev)
		}
	}
}

// TestFromLabels checks that labels read as requirements match exactly the nodes that have them.
func TestFromLabels(t *testing.T) {
	labels := map[string]string{"a": "1", "beta.kubernetes.io/os": "linux"}
	r := capacity.FromLabels(labels)
	if diff := cmp.Diff([]string{"a", corev1.LabelOSStable}, r.Keys()); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	other := maps.Clone(labels)
	other["a"] = "2"
	if !r.MatchesLabels(labels) || r.MatchesLabels(other) {
		t.Errorf("FromLabels matches own labels: %v, others: %v", r.MatchesLabels(labels), r.MatchesLabels(other))
	}
}
