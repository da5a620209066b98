// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// FuzzFromSelectors reads selectors from text (one a line, "operator value …", all on one key) and checks that
// what is accepted behaves as defined for any label value, and that what is not is an error and no panic.
func FuzzFromSelectors(f *testing.F) {
	for _, seed := range []struct{ text, value string }{
		{"In a b", "a"},
		{"NotIn a\nExists", ""},
		{"Gt 4\nLt 7\nNotIn 5", "6"},
		{"Gte 3\nLte 3", "3"},
		{"Gt 9223372036854775807", "9223372036854775807"},
		{"Lt -9223372036854775808", "0"},
		{"DoesNotExist\nExists", "x"},
		{"Gt a", "1"},
		{"In", ""},
		{"Bogus 1", "1"},
		{"Gt +5", "007"},
	} {
		f.Add(seed.text, seed.value)
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		var sel []corev1.NodeSelectorRequirement
		for line := range strings.Lines(text) {
			words := strings.Fields(line)
			if len(words) > 0 {
				sel = append(sel, is(corev1.NodeSelectorOperator(words[0]), words[1:]...))
			}
		}
		all, err := capacity.FromSelectors(sel)
		if err != nil || len(sel) == 0 {
			return
		}
		want := !slices.ContainsFunc(sel, func(s corev1.NodeSelectorRequirement) bool { return !holds(s, value, true) })
		got := all["k"]
		if got.Has(value) != want {
			t.Errorf("%v: Has(%q) = %v, want %v", sel, value, !want, want)
		}
		if all.MatchesLabels(map[string]string{"k": value}) != want {
			t.Errorf("%v: MatchesLabels(k=%q) = %v, want %v", sel, value, !want, want)
		}
		if back := req(t, got.Selectors()...); back.Has(value) != want {
			t.Errorf("%v: reads back as %v, which says %v for %q", sel, got.Selectors(), !want, value)
		}
	})
}
