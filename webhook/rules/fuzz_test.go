// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// Whatever a schedule and a duration say, the rule about them ends and says one line.
func FuzzSchedule(f *testing.F) {
	for _, seed := range [][3]string{
		{"0 9 * * 1-5", "8h", "10%"},
		{"@daily", "24h", "0"},
		{"@dailyX", "1h", "1"},
		{"61 25 * * *", "5m", "0"},
		{"0 0 30 2 *", "1h", "0"},
		{"TZ=Europe/Berlin 0 0 * * *", "1h", "0"},
		{"*/0 * * * *", "1h", "0"},
		{"0 9 * * 7", "8h", "50%"},
		{"@every 1s", "1s", "0"},
		{"", "", ""},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	registry := rules.NewRegistry()
	f.Fuzz(func(t *testing.T, schedule, duration, nodes string) {
		budget := map[string]any{"nodes": nodes, "schedule": schedule, "duration": duration}
		raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "p"}, "spec": map[string]any{"disruption": map[string]any{"budgets": []any{budget}}}})
		if err != nil {
			return // no text
		}
		judged(t, registry, rules.NodePool, raw)
	})
}

// Whatever a quantity says, no default is above the limit, and what is said is one line.
func FuzzQuantity(f *testing.F) {
	for _, seed := range [][2]string{{"100m", "1Gi"}, {"0", "0"}, {"-1", "1e3"}, {"1E", "9223372036854775807"}, {"1e-9", "0.5Ki"}, {"", "x"}, {"1n", "1m"}} {
		f.Add(seed[0], seed[1])
	}
	registry := rules.NewRegistry()
	f.Fuzz(func(t *testing.T, request, limit string) {
		if _, err := resource.ParseQuantity(request); err != nil {
			return // the API server refuses it
		}
		if _, err := resource.ParseQuantity(limit); err != nil {
			return
		}
		for _, form := range []string{
			`{"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":%q},"limits":{"memory":%q}}}]}}`,
			`{"spec":{"containers":[{"name":"a","resources":{"requests":{"memory":%q},"limits":{"memory":%q}}},{"name":"b"}]}}`,
		} {
			judged(t, registry, rules.Pod, fmt.Appendf(nil, form, request, limit))
		}
		judged(t, registry, rules.NodePool, fmt.Appendf(nil, `{"metadata":{"name":"p"},"spec":{"limits":{"cpu":%q,"memory":%q}}}`, request, limit))
	})
}

// No bytes make reading or choosing a policy panic, and every namespace gets exactly one.
func FuzzPolicy(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"default"},"spec":{"priority":1,"rules":{"D001":"Off"}}}`), "a", "b")
	f.Add([]byte(`{"metadata":{"name":"x"},"spec":{"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Like"}]},"requests":{"sticky":"-1h","fallback":{"cpu":"-1"}}}}`), "slipway.sh/policy", "x")
	f.Add([]byte(`{"spec":{"disruption":{"maxProtectedPods":"999%","indefinite":"Cap"},"placement":{"nodeSelector":{"":""}}}}`), "slipway.sh/managed", "true")
	registry := rules.NewRegistry()
	f.Fuzz(func(t *testing.T, raw []byte, key, value string) {
		p := &v1alpha1.WorkloadPolicy{}
		if json.Unmarshal(raw, p) != nil {
			return
		}
		labels := map[string]string{key: value}
		policies := []*v1alpha1.WorkloadPolicy{p, {}}
		c := rules.Choose(policies, "team", labels)
		data, _ := rules.NativeData(policies, []map[string]string{labels}, time.Unix(1_780_000_000, 0))
		if !strings.Contains(data["policies"], "\n"+v1alpha1.BuiltinPolicy+"\t") {
			t.Error("native policies do not know the built-in behaviour")
		}
		for _, rule := range rules.All() {
			if mode := c.Mode(&rule, value); mode == "" {
				t.Errorf("rule %s has no mode", rule.ID)
			}
		}
		s, err := rules.Decode(rules.Pod, []byte(`{"metadata":{"namespace":"team","annotations":{"karpenter.sh/do-not-disrupt":"4h"}},"spec":{"containers":[{"name":"a"}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		facts := &rules.Facts{Now: time.Unix(1_780_000_000, 0), Policy: c.Spec}
		registry.Requests(s, facts, &c, value)
		registry.Judge(s, facts, &rules.Setting{Namespace: c, Cluster: c, Admission: value})
	})
}

// judged evaluates every rule about the object and looks at what is said.
func judged(t *testing.T, registry *rules.Registry, kind rules.Kind, raw []byte) {
	t.Helper()
	s, err := rules.Decode(kind, raw)
	if err != nil {
		return // the API server refuses it
	}
	facts := &rules.Facts{Now: time.Unix(1_780_000_000, 0), Policy: rules.Builtin()}
	for _, x := range registry.Check(s, facts, func(*rules.Rule) bool { return true }) {
		text := x.Message("default")
		if len([]rune(text)) > 240 {
			t.Errorf("message of %s has %d runes: %s", x.Rule, len([]rune(text)), text)
		}
		for _, r := range text {
			if r < ' ' {
				t.Errorf("message of %s has a control character: %q", x.Rule, text)
			}
		}
	}
	for _, d := range first(rules.Defaults(s, facts)) {
		if d.Value.Sign() <= 0 {
			t.Errorf("default %s of %s is %s", d.Resource, d.Container, d.Value.String())
		}
	}
}

func first(set []rules.Default, _ []rules.Skipped) []rules.Default { return set }
