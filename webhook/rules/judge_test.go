// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook/rules"
)

func policy(name string, priority int32, change func(*v1alpha1.WorkloadPolicySpec)) *v1alpha1.WorkloadPolicy {
	p := &v1alpha1.WorkloadPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now().Add(-time.Hour))}, Spec: rules.Builtin(),
	}
	p.Spec.Priority = priority
	if change != nil {
		change(&p.Spec)
	}
	return p
}

func TestChoose(t *testing.T) {
	all := func(s *v1alpha1.WorkloadPolicySpec) { s.NamespaceSelector = &metav1.LabelSelector{} }
	broken := func(s *v1alpha1.WorkloadPolicySpec) {
		s.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
	}
	managed := map[string]string{v1alpha1.ManagedLabel: "true"}
	tests := map[string]struct {
		policies  []*v1alpha1.WorkloadPolicy
		namespace string
		labels    map[string]string
		want      string // name, then what lost or is missing
	}{
		"none":                       {want: ""},
		"selected by its label":      {policies: []*v1alpha1.WorkloadPolicy{policy("a", 0, nil)}, labels: managed, want: "a"},
		"default without a match":    {policies: []*v1alpha1.WorkloadPolicy{policy("a", 9, nil), policy("default", 0, nil)}, want: "default"},
		"highest priority":           {policies: []*v1alpha1.WorkloadPolicy{policy("a", 1, all), policy("b", 2, all)}, want: "b"},
		"a tie goes by name":         {policies: []*v1alpha1.WorkloadPolicy{policy("b", 1, all), policy("a", 1, all), policy("c", 0, all)}, want: "a lost=[b]"},
		"the label names one":        {policies: []*v1alpha1.WorkloadPolicy{policy("a", 1, nil), policy("b", 9, all)}, labels: map[string]string{v1alpha1.PolicyLabel: "a"}, want: "a"},
		"the label names nothing":    {policies: []*v1alpha1.WorkloadPolicy{policy("a", 1, all)}, labels: map[string]string{v1alpha1.PolicyLabel: "x"}, want: "a missing=x"},
		"a selector nobody can read": {policies: []*v1alpha1.WorkloadPolicy{policy("a", 1, broken)}, labels: managed, want: ""},
		"system namespaces":          {policies: []*v1alpha1.WorkloadPolicy{policy("a", 1, all), policy("default", 1, all)}, namespace: "kube-system", want: ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := rules.Choose(tt.policies, tt.namespace, tt.labels)
			got := c.Name
			if len(c.Lost) > 0 {
				got += fmt.Sprintf(" lost=%v", c.Lost)
			}
			if c.Missing != "" {
				got += " missing=" + c.Missing
			}
			if got != tt.want {
				t.Errorf("chose %q, want %q", got, tt.want)
			}
		})
	}
}

func TestMode(t *testing.T) {
	named := func(change func(*v1alpha1.WorkloadPolicySpec)) rules.Choice {
		p := policy("default", 0, change)
		return rules.Choice{Name: p.Name, Spec: p.Spec}
	}
	override := func(id string, m v1alpha1.RuleMode) func(*v1alpha1.WorkloadPolicySpec) {
		return func(s *v1alpha1.WorkloadPolicySpec) {
			s.Rules, s.ClusterRules = map[string]v1alpha1.RuleMode{id: m}, map[string]v1alpha1.RuleMode{id: m}
		}
	}
	karpenter := func(s *v1alpha1.WorkloadPolicySpec) { s.Compatibility = v1alpha1.KarpenterRules }
	builtin := rules.Choice{Spec: rules.Builtin()}
	tests := map[string]struct {
		choice    rules.Choice
		rule      string
		admission string
		want      v1alpha1.RuleMode
	}{
		"no policy changes nothing":               {builtin, "R001", "", v1alpha1.Warn},
		"no policy refuses nothing":               {builtin, "D001", "", v1alpha1.Warn},
		"but what can never work":                 {builtin, "N003", "", v1alpha1.Enforce},
		"a policy fills in":                       {named(nil), "R001", "", v1alpha1.Default},
		"a policy refuses":                        {named(nil), "D001", "", v1alpha1.Enforce},
		"an override":                             {named(override("S005", v1alpha1.Enforce)), "S005", "", v1alpha1.Enforce},
		"an override of a cluster rule":           {named(override("N011", v1alpha1.Off)), "N011", "", v1alpha1.Off},
		"nonsense is no override":                 {named(override("S005", "Shout")), "S005", "", v1alpha1.Warn},
		"migration":                               {named(karpenter), "D001", "", v1alpha1.Warn},
		"migration, even what can never work":     {named(karpenter), "N003", "", v1alpha1.Warn},
		"the namespace is off":                    {named(nil), "D001", "off", v1alpha1.Off},
		"the namespace audits":                    {named(nil), "D001", "audit", v1alpha1.Audit},
		"the namespace warns":                     {named(nil), "R001", "warn", v1alpha1.Warn},
		"the namespace cannot raise":              {named(nil), "S005", "enforce", v1alpha1.Warn},
		"unless the policy lets it":               {named(func(s *v1alpha1.WorkloadPolicySpec) { s.AllowNamespaceEscalation = true }), "S005", "enforce", v1alpha1.Enforce},
		"endless protection is allowed":           {named(func(s *v1alpha1.WorkloadPolicySpec) { s.Disruption.Indefinite = v1alpha1.IndefiniteAllow }), "D003", "", v1alpha1.Off},
		"endless protection is refused":           {named(func(s *v1alpha1.WorkloadPolicySpec) { s.Disruption.Indefinite = v1alpha1.IndefiniteDeny }), "D003", "", v1alpha1.Enforce},
		"endless protection is capped":            {named(func(s *v1alpha1.WorkloadPolicySpec) { s.Disruption.Indefinite = v1alpha1.IndefiniteCap }), "D003", "", v1alpha1.Default},
		"who may protect is asked when it is set": {named(func(s *v1alpha1.WorkloadPolicySpec) { s.Disruption.Setters.Authorize = true }), "D005", "", v1alpha1.Enforce},
	}
	registry := rules.NewRegistry()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.choice.Mode(registry.Rule(tt.rule), tt.admission); got != tt.want {
				t.Errorf("mode of %s is %s, want %s", tt.rule, got, tt.want)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	enforcing := policy("default", 0, func(s *v1alpha1.WorkloadPolicySpec) {
		s.Rules = map[string]v1alpha1.RuleMode{"D004": v1alpha1.Enforce}
	})
	long := annotated(protects, `"240h"`)
	excepted := "  annotations:\n    " + protects + ": 240h\n    slipway.sh/except: \"D004=long training;until=2026-07-10\"\n"
	young, old := now(), now().Add(-2*time.Hour)
	tests := map[string]struct {
		object, before string
		in             rules.Setting
		want           string // denied, warned or audited rules
		spared         []string
	}{
		"a new bare pod":          {object: pod(long, full), want: "denied [D004]"},
		"an exception":            {object: pod(excepted, full), want: "audited [D004]"},
		"an old value":            {object: pod(long, full), before: pod(long, full), want: "warned [D004]"},
		"another value":           {object: pod(long, full), before: pod(annotated(protects, `"250h"`), full), want: "denied [D004]"},
		"a new owner's first pod": {object: pod(long+ownedBy("Job", "a"), full), in: rules.Setting{OwnerSince: young}, want: "denied [D004]"},
		"a replacement": {
			object: pod(long+ownedBy("Job", "a"), full), in: rules.Setting{OwnerSince: young, OwnerRan: true}, want: "warned [D004]", spared: []string{"D004"},
		},
		"an owner older than the policy": {
			object: pod(long+ownedBy("Job", "a"), full), in: rules.Setting{OwnerSince: old}, want: "warned [D004]", spared: []string{"D004"},
		},
		"an owner nobody knows": {object: pod(long+ownedBy("Job", "a"), full), want: "warned [D004]", spared: []string{"D004"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := tc{kind: rules.Pod, object: tt.object, old: tt.before}.subject(t)
			tt.in.Namespace = rules.Choose([]*v1alpha1.WorkloadPolicy{enforcing}, "team", nil)
			tt.in.Keep = func(r *rules.Rule) bool { return r.ID == "D004" }
			v := rules.NewRegistry().Judge(s, facts(nil), &tt.in)
			var got string
			for _, part := range []struct {
				name string
				list []rules.Finding
			}{{"denied", v.Denied}, {"warned", v.Warned}, {"audited", v.Audited}} {
				if len(part.list) > 0 {
					got += fmt.Sprintf("%s [%s]", part.name, part.list[0].Rule)
				}
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if diff := cmp.Diff(tt.spared, v.Spared); diff != "" {
				t.Errorf("spared (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMessage(t *testing.T) {
	f := rules.Finding{Rule: "S005", Problem: "no\nfit " + strings.Repeat("ä", 400)}
	m := f.Message("default")
	if n := len([]rune(m)); n != 240 {
		t.Errorf("message has %d runes, want 240", n)
	}
	if strings.ContainsAny(m, "\n\r") || !strings.HasSuffix(m, "… [policy default]") {
		t.Errorf("message is %q", m)
	}
}

func TestDenialCountsWhatItLeavesOut(t *testing.T) {
	var list []rules.Finding
	for i := range 7 {
		list = append(list, rules.Finding{Rule: fmt.Sprintf("R00%d", i), Problem: "x"})
	}
	lines := strings.Split(rules.Denial(list, ""), "\n")
	if len(lines) != 6 || lines[5] != "(and 2 more findings)" {
		t.Errorf("denial is %q", lines)
	}
}
