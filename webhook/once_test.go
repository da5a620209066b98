// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/manifests/install"
	"github.com/slipway-sh/slipway/webhook"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// podHook is the installed validating hook of pods.
func podHook(t *testing.T) registration.ValidatingWebhook {
	t.Helper()
	for part := range strings.SplitSeq(string(install.Admission), "\n---\n") {
		var c registration.ValidatingWebhookConfiguration
		if err := yaml.Unmarshal([]byte(part), &c); err != nil || c.Kind != "ValidatingWebhookConfiguration" {
			continue
		}
		for _, h := range c.Webhooks {
			if h.Name == "pods.validate.slipway.sh" {
				return h
			}
		}
	}
	t.Fatal("the installation has no validating hook for pods")
	return registration.ValidatingWebhook{}
}

// matcher evaluates the hook's conditions as the API server does.
func matcher(h *registration.ValidatingWebhook) matchconditions.Matcher {
	var conditions []cel.ExpressionAccessor
	for i := range h.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&h.MatchConditions[i]))
	}
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	return matchconditions.NewMatcher(compiler.CompileCondition(conditions, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions), h.FailurePolicy, "webhook", "validating", h.Name)
}

func called(t *testing.T, m matchconditions.Matcher, raw []byte) bool {
	t.Helper()
	p := &corev1.Pod{}
	if err := yaml.Unmarshal(raw, p); err != nil {
		t.Fatal(err)
	}
	kind, resource := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	got := m.Match(t.Context(), &admission.VersionedAttributes{
		Attributes:    admission.NewAttributesRecord(p, nil, kind, "team", "web", resource, "", admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "me"}),
		VersionedKind: kind, VersionedObject: admission.NewLazyObject(p), VersionedOldObject: admission.NewLazyObject(nil),
	}, nil, nil)
	if got.Error != nil {
		t.Fatal(got.Error)
	}
	return got.Matches
}

// Every new pod is judged by one of the two hooks, whatever it is made of and whatever is filled in. What is judged is D001, which
// any pod can break.
func TestEveryPodIsJudgedOnce(t *testing.T) {
	hook := podHook(t)
	m := matcher(&hook)
	owners := map[string]string{
		"bare": "", "controlled": ", ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: w, uid: r, controller: true}]",
		"owned": ", ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: w, uid: c}]",
	}
	annotations := map[string]string{"plain": "", "filled in before": `, slipway.sh/defaulted: "api/cpu=100m:fallback"`}
	containers := map[string]string{
		"nothing":   "containers: [{name: api}]",
		"one":       "containers: [{name: api, resources: {requests: {cpu: 1}}}]",
		"all":       "containers: [{name: api, resources: {requests: {cpu: 1, memory: 1Gi}}}]",
		"two":       "containers: [{name: api, resources: {requests: {cpu: 1, memory: 1Gi}}}, {name: proxy}]",
		"sidecar":   "initContainers: [{name: proxy, restartPolicy: Always}], containers: [{name: api, resources: {requests: {cpu: 1, memory: 1Gi}}}]",
		"pod level": "resources: {requests: {cpu: 1, memory: 1Gi}}, containers: [{name: api}]",
	}
	policies := map[string]func(*webhook.Inputs){
		"policy": func(*webhook.Inputs) {}, "no policy": func(in *webhook.Inputs) { in.Policies = nil },
		"policy that fills in nothing": func(in *webhook.Inputs) {
			in.Policies[0].Spec.Rules = map[string]v1alpha1.RuleMode{"R001": v1alpha1.Off, "R002": v1alpha1.Warn}
		},
	}
	for policy, change := range policies {
		in := managed(nil)
		change(&in)
		b := newBench(t, in, func(o *webhook.Options) { o.Native = false })
		for owner, references := range owners {
			for before, more := range annotations {
				for size, list := range containers {
					t.Run(fmt.Sprintf("%s, %s, %s, %s", policy, owner, before, size), func(t *testing.T) {
						r := request{object: fmt.Sprintf("metadata: {annotations: {karpenter.sh/do-not-disrupt: maybe%s}%s}\nspec: {schedulerName: slipway, %s}", more, references, list)}
						first := b.ask(t, "mutate", r)
						judged := judges(first)
						if first.Allowed {
							r.object = string(apply(t, toJSON(t, r.object), first))
						}
						final := toJSON(t, r.object)
						asked := first.Allowed && called(t, m, final)
						if asked && judges(b.ask(t, "validate", r)) == judged {
							t.Errorf("judged by both hooks or by none: %s", final)
						}
						if !asked && !judged {
							t.Errorf("the mutating hook does not judge, and the validating one is not asked: %s", final)
						}
						s, err := rules.Decode(rules.Pod, final)
						if err != nil {
							t.Fatal(err)
						}
						if first.Allowed && webhook.Validated(s) != asked {
							t.Errorf("the handler says %t and the condition %t: %s", webhook.Validated(s), asked, final)
						}
					})
				}
			}
		}
	}
}

func judges(resp *admissionv1.AdmissionResponse) bool {
	return strings.Contains(resp.AuditAnnotations["rules"], "D001")
}
