// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/webhook/rules"
)

// now is the time of every review in these tests, a Wednesday.
func now() time.Time { return time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC) }

// tc is one object and what one rule says about it.
type tc struct {
	kind rules.Kind
	// object and old are YAML; old makes it an update.
	object, old string
	op          rules.Operation
	user        string
	facts       func(*rules.Facts)
	// want are "field: problem", empty for nothing to say. mild says that all are.
	want []string
	mild bool
}

// subject decodes the case's object.
func (c tc) subject(t *testing.T) *rules.Subject {
	t.Helper()
	s := decode(t, c.kind, c.object)
	if c.old != "" {
		s.Old, s.Operation = decode(t, c.kind, c.old), rules.Update
	}
	if c.op != "" {
		s.Operation = c.op
	}
	s.User = c.user
	return s
}

func decode(t *testing.T, kind rules.Kind, text string) *rules.Subject {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("the test's object is no YAML: %v\n%s", err, text)
	}
	s, err := rules.Decode(kind, raw)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// facts are those of the built-in policy, changed by the case.
func facts(change func(*rules.Facts)) *rules.Facts {
	f := &rules.Facts{Now: now(), Policy: rules.Builtin()}
	if change != nil {
		change(f)
	}
	return f
}

// check runs the cases of one rule. Every rule with a check needs a case that finds something and one that does not.
func check(t *testing.T, id string, cases map[string]tc) {
	t.Helper()
	registry := rules.NewRegistry()
	rule := registry.Rule(id)
	if rule == nil {
		t.Fatalf("there is no rule %s", id)
	}
	found, silent := false, false
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := c.subject(t)
			var got []string
			for _, x := range registry.Check(s, facts(c.facts), func(r *rules.Rule) bool { return r.ID == id }) {
				got = append(got, x.Field+": "+x.Problem)
				if x.Mild != c.mild {
					t.Errorf("%s: mild is %t, want %t", x.Problem, x.Mild, c.mild)
				}
				if m := x.Message("default"); len([]rune(m)) > 240 {
					t.Errorf("message has %d runes: %s", len([]rune(m)), m)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
		found, silent = found || len(c.want) > 0, silent || len(c.want) == 0
	}
	if !found || !silent {
		t.Errorf("rule %s needs a case with a finding (%t) and one without (%t)", id, found, silent)
	}
}

// pod is a pod with one container; spec and meta are further lines of YAML, indented by two.
func pod(meta, spec string) string {
	return "metadata:\n  name: web-1\n  namespace: team\n" + meta + "spec:\n" + spec
}

// deployment makes its pods from a template; meta and spec are indented by six.
func deployment(meta, spec string) string {
	return "metadata: {name: web, namespace: team}\nspec:\n  replicas: 6\n  template:\n    metadata:\n      labels: {app: web}\n" + meta + "    spec:\n" + spec
}

// annotated is the metadata of a pod with one annotation.
func annotated(key, value string) string { return "  annotations:\n    " + key + ": " + value + "\n" }

// ownedBy is the metadata of a pod with a controller.
func ownedBy(kind, name string) string {
	return "  ownerReferences: [{apiVersion: apps/v1, kind: " + kind + ", name: " + name + ", uid: u1, controller: true}]\n"
}
