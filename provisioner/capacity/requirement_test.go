// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

const (
	opIn     = corev1.NodeSelectorOpIn
	opNotIn  = corev1.NodeSelectorOpNotIn
	opExists = corev1.NodeSelectorOpExists
	opAbsent = corev1.NodeSelectorOpDoesNotExist
	opGt     = corev1.NodeSelectorOpGt
	opLt     = corev1.NodeSelectorOpLt
)

// req is the conjunction of selectors on one key.
func req(t testing.TB, sel ...corev1.NodeSelectorRequirement) capacity.Requirement {
	t.Helper()
	all, err := capacity.FromSelectors(sel)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 {
		t.Fatalf("selectors are on %d keys, want one", len(all))
	}
	return all[all.Keys()[0]]
}

func is(op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
	return builder.Requirement("k", op, values...)
}

func must(t *testing.T, key string, op corev1.NodeSelectorOperator, value string) capacity.Requirement {
	t.Helper()
	r, err := capacity.NewRequirement(key, op, value)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAny(t *testing.T) {
	for name, tc := range map[string]struct {
		r    capacity.Requirement
		want string
		ok   bool
	}{
		"a list":            {capacity.In("k", "b", "a"), "a", true},
		"nothing":           {capacity.In("k"), "", false},
		"no label":          {capacity.DoesNotExist("k"), "", false},
		"anything":          {capacity.Exists("k"), "0", true},
		"all but some":      {not(t, "k", "0", "2", "1", "x"), "3", true},
		"more than":         {must(t, "k", corev1.NodeSelectorOpGt, "6"), "7", true},
		"between":           {must(t, "k", corev1.NodeSelectorOpGt, "6").Intersect(must(t, "k", corev1.NodeSelectorOpLt, "8")), "7", true},
		"between, but one":  {must(t, "k", corev1.NodeSelectorOpGt, "6").Intersect(must(t, "k", corev1.NodeSelectorOpLt, "8")).Intersect(not(t, "k", "7")), "", false},
		"less than nothing": {must(t, "k", corev1.NodeSelectorOpLt, "0"), "", false},
		"the last integer":  {must(t, "k", capacity.OpGte, "9223372036854775807").Intersect(not(t, "k", "9223372036854775807")), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := tc.r.Any(); got != tc.want || ok != tc.ok {
				t.Errorf("Any of %s = %q, %v; want %q, %v", tc.r, got, ok, tc.want, tc.ok)
			}
		})
	}
}

func TestRequirement(t *testing.T) {
	type want struct {
		Allowed    []string // of: "", a, b, 4, 5, 6, 7
		Absent     bool     // a node without the label will do
		Impossible bool
		Operator   corev1.NodeSelectorOperator
		String     string
	}
	values := []string{"", "a", "b", "4", "5", "6", "7"}
	maxInt, minInt := strconv.FormatInt(math.MaxInt64, 10), strconv.FormatInt(math.MinInt64, 10)
	for name, tc := range map[string]struct {
		selectors []corev1.NodeSelectorRequirement
		want      want
	}{
		"In":                         {[]corev1.NodeSelectorRequirement{is(opIn, "b", "a", "b")}, want{[]string{"a", "b"}, false, false, opIn, "k In [a b]"}},
		"NotIn":                      {[]corev1.NodeSelectorRequirement{is(opNotIn, "a", "5")}, want{[]string{"", "b", "4", "6", "7"}, true, false, opNotIn, "k NotIn [5 a]"}},
		"Exists":                     {[]corev1.NodeSelectorRequirement{is(opExists)}, want{values, false, false, opExists, "k Exists"}},
		"DoesNotExist":               {[]corev1.NodeSelectorRequirement{is(opAbsent)}, want{nil, true, false, opAbsent, "k DoesNotExist"}},
		"Gt admits larger integers":  {[]corev1.NodeSelectorRequirement{is(opGt, "5")}, want{[]string{"6", "7"}, false, false, opExists, "k Exists >=6"}},
		"Lt admits smaller integers": {[]corev1.NodeSelectorRequirement{is(opLt, "5")}, want{[]string{"4"}, false, false, opExists, "k Exists <=4"}},
		"Gte includes its bound":     {[]corev1.NodeSelectorRequirement{is(capacity.OpGte, "6")}, want{[]string{"6", "7"}, false, false, opExists, "k Exists >=6"}},
		"Lte includes its bound":     {[]corev1.NodeSelectorRequirement{is(capacity.OpLte, "5")}, want{[]string{"4", "5"}, false, false, opExists, "k Exists <=5"}},
		"nothing is beyond the last integer": {
			[]corev1.NodeSelectorRequirement{is(opGt, maxInt)}, want{nil, false, true, opAbsent, "k with no possible value"},
		},
		"nothing is before the first integer": {
			[]corev1.NodeSelectorRequirement{is(opLt, minInt)}, want{nil, false, true, opAbsent, "k with no possible value"},
		},
		"bounds cut a range": {
			[]corev1.NodeSelectorRequirement{is(opGt, "4"), is(opLt, "7")}, want{[]string{"5", "6"}, false, false, opExists, "k Exists >=5 <=6"},
		},
		"bounds are dropped from a finite set": {
			[]corev1.NodeSelectorRequirement{is(opGt, "4"), is(opIn, "a", "4", "5", "6")}, want{[]string{"5", "6"}, false, false, opIn, "k In [5 6]"},
		},
		"excluded values outside the bounds are forgotten": {
			[]corev1.NodeSelectorRequirement{is(opNotIn, "a", "4", "6"), is(opGt, "4")}, want{[]string{"5", "7"}, false, false, opNotIn, "k NotIn [6] >=5"},
		},
		"crossing bounds leave nothing, not even absence": {
			[]corev1.NodeSelectorRequirement{is(opGt, "5"), is(opLt, "5")}, want{nil, false, true, opAbsent, "k with no possible value"},
		},
		"disjoint sets leave nothing, not even absence": {
			[]corev1.NodeSelectorRequirement{is(opIn, "a"), is(opIn, "b")}, want{nil, false, true, opAbsent, "k with no possible value"},
		},
		"Exists takes absence away from NotIn": {
			[]corev1.NodeSelectorRequirement{is(opNotIn, "a"), is(opExists)}, want{[]string{"", "b", "4", "5", "6", "7"}, false, false, opNotIn, "k NotIn [a]"},
		},
		"a bound takes absence away from NotIn": {
			[]corev1.NodeSelectorRequirement{is(opNotIn, "6"), is(opGt, "4")}, want{[]string{"5", "7"}, false, false, opNotIn, "k NotIn [6] >=5"},
		},
		"Exists and DoesNotExist contradict": {
			[]corev1.NodeSelectorRequirement{is(opExists), is(opAbsent)}, want{nil, false, true, opAbsent, "k with no possible value"},
		},
		"NotIn and DoesNotExist are DoesNotExist": {
			[]corev1.NodeSelectorRequirement{is(opNotIn, "a"), is(opAbsent)}, want{nil, true, false, opAbsent, "k DoesNotExist"},
		},
		"two NotIn unite": {
			[]corev1.NodeSelectorRequirement{is(opNotIn, "a"), is(opNotIn, "b")}, want{[]string{"", "4", "5", "6", "7"}, true, false, opNotIn, "k NotIn [a b]"},
		},
		"In without the NotIn values": {
			[]corev1.NodeSelectorRequirement{is(opIn, "a", "b"), is(opNotIn, "b")}, want{[]string{"a"}, false, false, opIn, "k In [a]"},
		},
		"five values are printed, the rest counted": {
			[]corev1.NodeSelectorRequirement{is(opIn, "1", "2", "3", "4", "5", "6")}, want{[]string{"4", "5", "6"}, false, false, opIn, "k In [1 2 3 4 5 and 1 others]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := req(t, tc.selectors...)
			got := want{Absent: r.AllowsAbsent(), Impossible: r.Impossible(), Operator: r.Operator(), String: r.String()}
			for _, v := range values {
				if r.Has(v) {
					got.Allowed = append(got.Allowed, v)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("requirement (-want +got):\n%s", diff)
			}
			if back := req(t, r.Selectors()...); back.String() != r.String() || back.AllowsAbsent() != r.AllowsAbsent() {
				t.Errorf("Selectors() = %v reads back as %s (absent %v), want %s (absent %v)", r.Selectors(), back, back.AllowsAbsent(), r, r.AllowsAbsent())
			}
		})
	}
}

func TestNewRequirementErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		op     corev1.NodeSelectorOperator
		values []string
		want   string
	}{
		"unknown operator":  {"Near", nil, `requirement on "k": unknown operator "Near" (use In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte)`},
		"no bound":          {opGt, nil, `requirement on "k": operator "Gt" takes exactly one integer, got 0 values`},
		"two bounds":        {opLt, []string{"1", "2"}, `requirement on "k": operator "Lt" takes exactly one integer, got 2 values`},
		"no integer":        {capacity.OpGte, []string{"many"}, `requirement on "k": operator "Gte" needs an integer, got "many"`},
		"too large a bound": {capacity.OpLte, []string{"9223372036854775808"}, `requirement on "k": operator "Lte" needs an integer, got "9223372036854775808"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := capacity.NewRequirement("k", tc.op, tc.values...)
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCanonicalKey(t *testing.T) {
	want := map[string]string{
		"failure-domain.beta.kubernetes.io/zone":   corev1.LabelTopologyZone,
		"failure-domain.beta.kubernetes.io/region": corev1.LabelTopologyRegion,
		"topology.ebs.csi.aws.com/zone":            corev1.LabelTopologyZone,
		"beta.kubernetes.io/arch":                  corev1.LabelArchStable,
		"beta.kubernetes.io/os":                    corev1.LabelOSStable,
		"beta.kubernetes.io/instance-type":         corev1.LabelInstanceTypeStable,
		"example.com/beta.kubernetes.io":           "example.com/beta.kubernetes.io",
		corev1.LabelHostname:                       corev1.LabelHostname,
	}
	for key, canonical := range want {
		if got := capacity.CanonicalKey(key); got != canonical {
			t.Errorf("CanonicalKey(%q) = %q, want %q", key, got, canonical)
		}
		if key == canonical {
			continue
		}
		if r := capacity.NewRequirements(capacity.In(key, "x")); !r.MatchesLabels(map[string]string{key: "x"}) || !r.MatchesLabels(map[string]string{canonical: "x"}) {
			t.Errorf("a requirement on %q does not match a node that has it or %q", key, canonical)
		}
	}
}

func TestIntersectKeepsTheGreaterMinValues(t *testing.T) {
	a, b := capacity.In("k", "a", "b", "c"), capacity.Exists("k")
	a.MinValues, b.MinValues = 2, 3
	if got := a.Intersect(b).MinValues; got != 3 {
		t.Errorf("MinValues = %d, want 3", got)
	}
	if got := b.Intersect(capacity.Exists("k")).String(); got != "k Exists minValues 3" {
		t.Errorf("String() = %q", got)
	}
}
