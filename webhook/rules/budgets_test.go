// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"testing"

	policyv1 "k8s.io/api/policy/v1"

	"github.com/slipway-sh/slipway/webhook/rules"
)

func budget(spec string) string {
	return "metadata: {name: web, namespace: team}\nspec:\n  selector: {matchLabels: {app: web}}\n" + spec
}

// sized is a namespace with one Deployment.
func sized(replicas, least int32) func(*rules.Facts) {
	return func(f *rules.Facts) {
		f.Workloads = func(string) []rules.Workload {
			return []rules.Workload{{Kind: "Deployment", Name: "web", Labels: map[string]string{"app": "web"}, Replicas: replicas, Least: least, Scaler: "web-hpa"}}
		}
	}
}

func TestB001(t *testing.T) {
	check(t, "B001", map[string]tc{
		"none unavailable": {kind: rules.Budget, object: budget("  maxUnavailable: 0\n"), want: []string{"spec.maxUnavailable: 0 never allows an eviction"}},
		"no percent":       {kind: rules.Budget, object: budget("  maxUnavailable: 0%\n"), want: []string{"spec.maxUnavailable: 0% never allows an eviction"}},
		"all available":    {kind: rules.Budget, object: budget("  minAvailable: 100%\n"), want: []string{"spec.minAvailable: 100% never allows an eviction"}},
		"one may be away":  {kind: rules.Budget, object: budget("  maxUnavailable: 1\n")},
	})
}

func TestB002(t *testing.T) {
	check(t, "B002", map[string]tc{
		"rounded up": {
			kind: rules.Budget, object: budget("  minAvailable: 90%\n"), facts: sized(5, 5),
			want: []string{`spec.minAvailable: 90% of 5 pods of deployment "web" is 5, which allows no eviction`},
		},
		"a number": {
			kind: rules.Budget, object: budget("  minAvailable: 3\n"), facts: sized(3, 3),
			want: []string{`spec.minAvailable: 3 of 3 pods of deployment "web" is 3, which allows no eviction`},
		},
		"at the autoscaler's minimum": {
			kind: rules.Budget, object: budget("  minAvailable: 2\n"), facts: sized(10, 2),
			want: []string{`spec.minAvailable: 2 of 2 pods of deployment "web", the minimum of autoscaler "web-hpa", is 2, which allows no eviction`},
		},
		"one replica and no bound given": {
			kind: rules.Budget, object: budget(""), facts: sized(1, 1),
			want: []string{`spec.minAvailable: 1 of 1 pod of deployment "web" is 1, which allows no eviction`},
		},
		"rounded up in the pod's favour": {kind: rules.Budget, object: budget("  maxUnavailable: 1%\n"), facts: sized(5, 5)},
		"enough replicas":                {kind: rules.Budget, object: budget("  minAvailable: 90%\n"), facts: sized(11, 11)},
		"scaled to nothing":              {kind: rules.Budget, object: budget("  minAvailable: 1\n"), facts: sized(0, 0)},
		"replicas unknown":               {kind: rules.Budget, object: budget("  minAvailable: 90%\n")},
	})
}

func TestB003(t *testing.T) {
	other := func(name, app string) func(*rules.Facts) {
		return func(f *rules.Facts) {
			sized(3, 3)(f)
			f.Budgets = func(string) []*policyv1.PodDisruptionBudget {
				b := &policyv1.PodDisruptionBudget{}
				b.Name = name
				b.Spec.Selector = selectorOf("app", app)
				return []*policyv1.PodDisruptionBudget{b}
			}
		}
	}
	check(t, "B003", map[string]tc{
		"overlap": {
			kind: rules.Budget, object: budget(""), facts: other("web-old", "web"),
			want: []string{`spec.selector: selects pods of deployment "web", as budget "web-old" does; evictions of them fail`},
		},
		"itself": {kind: rules.Budget, object: budget(""), facts: other("web", "web")},
		"others": {kind: rules.Budget, object: budget(""), facts: other("db", "db")},
	})
}

func TestB004(t *testing.T) {
	check(t, "B004", map[string]tc{
		"nothing": {
			kind: rules.Budget, object: "metadata: {name: a, namespace: team}\nspec: {selector: {matchLabels: {app: wbe}}}", facts: sized(3, 3),
			want: []string{"spec.selector: matches no workload of the namespace"},
		},
		"everything": {
			kind: rules.Budget, object: "metadata: {name: a, namespace: team}\nspec: {selector: {}}", facts: sized(3, 3),
			want: []string{"spec.selector: is empty and selects every pod of the namespace"},
		},
		"no selector": {
			kind: rules.Budget, object: "metadata: {name: a, namespace: team}", facts: sized(3, 3),
			want: []string{"spec.selector: matches no workload of the namespace"},
		},
		"one": {kind: rules.Budget, object: budget(""), facts: sized(3, 3)},
	})
}

func TestB005(t *testing.T) {
	check(t, "B005", map[string]tc{
		"default": {kind: rules.Budget, object: budget(""), want: []string{"spec.unhealthyPodEvictionPolicy: is not AlwaysAllow"}},
		"always":  {kind: rules.Budget, object: budget("  unhealthyPodEvictionPolicy: AlwaysAllow\n")},
	})
}
