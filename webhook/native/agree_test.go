// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package native_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// parts are pieces of pods that native rules are about, or nearly.
func parts() (annotations, specs, containers []string) {
	annotations = []string{
		``, `karpenter.sh/do-not-disrupt: "true"`, `karpenter.sh/do-not-disrupt: "yes"`, `karpenter.sh/do-not-disrupt: "4h"`, `karpenter.sh/do-not-disrupt: "400h"`,
		`karpenter.sh/do-not-evict: "true"`, `slipway.sh/latency-class: batch`, `slipway.sh/latency-class: bach`, `slipway.sh/except: "R005=later"`,
		`karpenter.sh/do-not-evict: "true", slipway.sh/except: "D002=old;until=2026-06-20"`, `other: x`,
		`slipway.sh/except: "R005=large;until=2026-06-20, R003=x;until=2026-06-20"`,
	}
	specs = []string{
		``, `schedulerName: slipway, `, `schedulerName: other, `, `nodeName: n1, `, `tolerations: [{operator: Exists}], `, `tolerations: [{key: nvidia.com/gpu, operator: Exists}], `,
		`tolerations: [{key: karpenter.sh/disrupted, operator: Exists}], `, `tolerations: [{key: a, operator: Exists}], `, `nodeSelector: {karpenter.k8s.aws/instance-gpu-count: "1"}, `,
		`nodeSelector: {a: b}, `, `volumes: [{name: v, emptyDir: {}}], `, `volumes: [{name: v, emptyDir: {sizeLimit: 1Gi}}], `, `volumes: [{name: v, emptyDir: {medium: Memory}}], `,
		`initContainers: [{name: i, image: x, resources: {requests: {cpu: 1m}}}], `, `initContainers: [{name: i, image: x, restartPolicy: Always, resources: {requests: {memory: 1Gi}, limits: {memory: 8Gi}}}], `,
	}
	containers = []string{
		``, `requests: {cpu: 100m, memory: 1Gi}`, `requests: {cpu: 1m, memory: 1Gi}`, `requests: {cpu: 100m, memory: 1Mi}`, `requests: {cpu: 100m, memory: 1Gi}, limits: {memory: 1Gi}`,
		`requests: {cpu: 100m, memory: 1Gi}, limits: {memory: 3Gi}`, `requests: {cpu: 100m, memory: 1Gi}, limits: {cpu: 2, memory: 1024Mi}`, `requests: {cpu: 100m, memory: 1Gi, nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 1}`,
	}
	return annotations, specs, containers
}

// worlds are policies that differ in what holds for the namespace team: the last of the kind is that there is none.
func worlds() map[string][]*v1alpha1.WorkloadPolicy {
	of := func(change func(*v1alpha1.WorkloadPolicySpec)) []*v1alpha1.WorkloadPolicy {
		return []*v1alpha1.WorkloadPolicy{policy("default", 0, change)}
	}
	return map[string][]*v1alpha1.WorkloadPolicy{
		"none":      {},
		"default":   of(nil),
		"migration": of(func(s *v1alpha1.WorkloadPolicySpec) { s.Compatibility = v1alpha1.KarpenterRules }),
		"escalates": of(func(s *v1alpha1.WorkloadPolicySpec) { s.AllowNamespaceEscalation = true }),
		"classes":   of(func(s *v1alpha1.WorkloadPolicySpec) { s.LatencyClasses = []v1alpha1.LatencyClass{{Name: "batch"}} }),
		"deny":      of(func(s *v1alpha1.WorkloadPolicySpec) { s.Disruption.Indefinite = v1alpha1.IndefiniteDeny }),
		"free":      of(func(s *v1alpha1.WorkloadPolicySpec) { s.Exceptions.RequireReason = new(false) }),
		"strict": of(func(s *v1alpha1.WorkloadPolicySpec) {
			s.Rules = map[string]v1alpha1.RuleMode{"R003": v1alpha1.Enforce, "R004": v1alpha1.Warn, "R005": v1alpha1.Enforce, "R007": v1alpha1.Audit, "S002": v1alpha1.Enforce, "S009": v1alpha1.Off}
		}),
		"another is stricter": {policy("default", 0, nil), policy("x", 1, func(s *v1alpha1.WorkloadPolicySpec) {
			s.NamespaceSelector, s.SchedulerName = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}, "other"
			s.Rules = map[string]v1alpha1.RuleMode{"R004": v1alpha1.Enforce}
		})},
	}
}

// Native policies say of pods what package rules says, and their condition leaves out only pods that are in order.
func TestNativeAgreesWithRules(t *testing.T) {
	all, conditional := compile(t, "pods.yaml", false), compile(t, "pods.yaml", true)
	registry := rules.NewRegistry()
	annotations, specs, containers := parts()
	for name, policies := range worlds() {
		t.Run(name, func(t *testing.T) {
			dice := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same every time
			one := func(list []string) string { return list[dice.IntN(len(list))] }
			for range 150 {
				text := fmt.Sprintf(`{"apiVersion": v1, "kind": Pod, metadata: {name: web, namespace: team, annotations: {%s}}, spec: {%scontainers: [{name: a, image: x, resources: {%s}}, {name: b, image: x, resources: {%s}}]}}`,
					one(annotations), one(specs), one(containers), one(containers))
				labels := map[string]string{v1alpha1.ManagedLabel: "true"}
				if level := one([]string{"", "", "audit", "warn", "enforce"}); level != "" {
					labels[v1alpha1.AdmissionLabel] = level
				}
				p, params := pod(t, text), parameter(policies, labels)
				var got, guarded [3][]string
				for i := range all {
					got[i], guarded[i] = idsOf(all[i].evaluate(t, p, labels, params)), idsOf(conditional[i].evaluate(t, p, labels, params))
				}
				if diff := cmp.Diff(got, guarded); diff != "" {
					t.Fatalf("the condition leaves out what is found (-all +conditional):\n%s\n%s", diff, text)
				}
				raw, err := json.Marshal(p)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(judged(t, registry, raw, policies, labels), got); diff != "" {
					t.Fatalf("refused, warned, noted (-package rules +expressions):\n%s\nlabels %v\n%s", diff, labels, text)
				}
			}
		})
	}
}

// judged are the ids of what package rules refuses, warns of and notes, of the rules that are native.
func judged(t *testing.T, registry *rules.Registry, raw []byte, policies []*v1alpha1.WorkloadPolicy, labels map[string]string) [3][]string {
	t.Helper()
	s, err := rules.Decode(rules.Pod, raw)
	if err != nil {
		t.Fatal(err)
	}
	c := rules.Choose(policies, "team", labels)
	v := registry.Judge(s, &rules.Facts{Now: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC), Policy: c.Spec}, &rules.Setting{
		Namespace: c, Cluster: rules.ForCluster(policies), Admission: labels[v1alpha1.AdmissionLabel], Keep: func(r *rules.Rule) bool { return r.On(rules.VAP) },
	})
	var out [3][]string
	for i, list := range [][]rules.Finding{v.Denied, v.Warned, v.Audited} {
		for _, f := range list {
			out[i] = append(out[i], f.Rule)
		}
		slices.Sort(out[i])
		out[i] = slices.Compact(out[i])
	}
	return out
}

// An expression finds the policy that [rules.Choose] chooses, whether slipway-webhook knows the namespace or not.
func TestChoiceAgrees(t *testing.T) {
	warn := compile(t, "pods.yaml", true)[1]
	p := pod(t, `{metadata: {name: web, annotations: {karpenter.sh/do-not-evict: "true"}}, spec: {containers: [{name: a, image: x}]}}`)
	dice := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same every time
	value := func() string { return []string{"a", "b", "a.b", "", "a.-._b"}[dice.IntN(5)] }
	key := func() string { return []string{"team", "slipway.sh/tier", "kubernetes.io/metadata.name"}[dice.IntN(3)] }
	selector := func() *metav1.LabelSelector {
		switch dice.IntN(5) {
		case 0:
			return nil
		case 1:
			return &metav1.LabelSelector{MatchLabels: map[string]string{key(): value(), key(): value()}}
		case 2:
			return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key(), Operator: metav1.LabelSelectorOpNotIn, Values: []string{value(), value()}}, {Key: key(), Operator: metav1.LabelSelectorOpExists}}}
		case 3:
			return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key(), Operator: metav1.LabelSelectorOpIn, Values: []string{value(), value()}}, {Key: key(), Operator: metav1.LabelSelectorOpDoesNotExist}}}
		default:
			return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key(), Operator: "Like", Values: []string{value()}}}}
		}
	}
	for range 300 {
		var policies []*v1alpha1.WorkloadPolicy
		for _, name := range []string{"default", "one", "two", "thr.ee", v1alpha1.BuiltinPolicy}[dice.IntN(3) : 2+dice.IntN(4)] {
			policies = append(policies, policy(name, dice.Int32N(2), func(s *v1alpha1.WorkloadPolicySpec) { s.NamespaceSelector = selector() }))
		}
		labels := map[string]string{v1alpha1.ManagedLabel: "true", key(): value(), key(): value()}
		if dice.IntN(4) == 0 {
			labels[v1alpha1.PolicyLabel] = []string{"one", "gone", v1alpha1.BuiltinPolicy}[dice.IntN(3)]
		}
		want := rules.Choose(policies, "team", labels).Name
		for known, params := range map[bool]*corev1.ConfigMap{true: parameter(policies, labels), false: parameter(policies)} {
			got := warn.evaluate(t, p, labels, params)
			_, name, _ := strings.Cut(strings.Join(got, ""), "[policy ")
			if name = strings.TrimSuffix(name, "]"); len(got) != 1 || name != want {
				t.Errorf("namespace %v (known: %t): %v, want policy %q of %v", labels, known, got, want, policies)
			}
		}
	}
}
