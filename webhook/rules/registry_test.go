// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/webhook/rules"
)

// Every rule says what people need to know, and is evaluated somewhere.
func TestRegistry(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rules.All() {
		if seen[r.ID] {
			t.Errorf("%s is there twice", r.ID)
		}
		seen[r.ID] = true
		for name, text := range map[string]string{"title": r.Title, "why": r.Why, "fix": r.Fix, "example": r.Example, "mode": string(r.Mode), "needs": string(r.Needs)} {
			if text == "" {
				t.Errorf("%s has no %s", r.ID, name)
			}
		}
		if len(r.Engines) == 0 || len(r.Kinds) == 0 {
			t.Errorf("%s has engines %v and kinds %v, want some of both", r.ID, r.Engines, r.Kinds)
		}
		if r.On(rules.Webhook) && r.Check == nil {
			t.Errorf("%s is the webhook's and has no check", r.ID)
		}
		if len([]rune(r.Example)) > 300 {
			t.Errorf("%s: the example has %d runes", r.ID, len([]rune(r.Example)))
		}
	}
	if len(seen) != 62 {
		t.Errorf("there are %d rules; if that is meant, correct this number and docs/reference/admission.md", len(seen))
	}
}

// The page is made from the registry: SLIPWAY_UPDATE=1 go test ./webhook/rules -run TestPage writes it.
func TestPage(t *testing.T) {
	const path = "../../docs/reference/admission.md"
	want := rules.Page()
	if os.Getenv("SLIPWAY_UPDATE") != "" {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(got), "\n"), strings.Split(want, "\n")); diff != "" {
		t.Errorf("docs/reference/admission.md is not what the registry says; run SLIPWAY_UPDATE=1 go test ./webhook/rules -run TestPage (-page +registry):\n%s", diff)
	}
}
