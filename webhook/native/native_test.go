// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package native_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/manifests/policies"
	"github.com/slipway-sh/slipway/webhook/native"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// manifests/policies is what this package makes.
func TestFilesAreCurrent(t *testing.T) {
	var names []string
	for _, f := range native.Files() {
		names = append(names, f.Name)
		want, err := f.YAML()
		if err != nil {
			t.Fatal(err)
		}
		got, err := policies.Files.ReadFile(f.Name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Split(string(got), "\n"), strings.Split(string(want), "\n")); diff != "" {
			t.Errorf("manifests/policies/%s: run make generate (-file +generated):\n%s", f.Name, diff)
		}
	}
	entries, err := policies.Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(names, e.Name()) {
			t.Errorf("manifests/policies/%s is made by nobody", e.Name())
		}
	}
}

// Every rule whose engine is a native policy is in one, and no other.
func TestRulesAndPoliciesAgree(t *testing.T) {
	all := map[string]string{}
	for _, f := range native.Files() {
		text, err := f.YAML()
		if err != nil {
			t.Fatal(err)
		}
		all[f.Name] = string(text)
	}
	in := func(id string) bool {
		for _, text := range all {
			if strings.Contains(text, "slipway "+id+":") || (strings.Contains(text, "("+id+")") && !strings.Contains(text, "kind: ValidatingAdmissionPolicy\n")) {
				return true
			}
		}
		return false
	}
	for _, r := range rules.All() {
		if want := r.On(rules.VAP) || r.On(rules.MAP); want != in(r.ID) {
			t.Errorf("%s: in the registry its engines are %v, in a native policy it is: %t", r.ID, r.Engines, !want)
		}
	}
}
