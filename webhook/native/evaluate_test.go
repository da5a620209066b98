// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package native_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook/native"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// compiled is a native policy made ready as the API server does.
type compiled struct {
	*admissionv1.ValidatingAdmissionPolicy

	validator validating.Validator
}

// compile makes the policies of a file ready. Without conditions everything is evaluated.
func compile(t testing.TB, file string, conditions bool) []compiled {
	t.Helper()
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	var out []compiled
	for _, f := range native.Files() {
		for _, o := range f.Objects {
			p, ok := o.(*admissionv1.ValidatingAdmissionPolicy)
			if f.Name != file || !ok {
				continue
			}
			compiler, err := cel.NewCompositedCompiler(base)
			if err != nil {
				t.Fatal(err)
			}
			with, without := cel.OptionalVariableDeclarations{HasParams: true, HasAuthorizer: true}, cel.OptionalVariableDeclarations{HasParams: true}
			for _, v := range p.Spec.Variables {
				if r := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, with, environment.NewExpressions); r.Error != nil {
					t.Fatalf("%s: variable %s: %v", p.Name, v.Name, r.Error)
				}
			}
			var validations, messages, match []cel.ExpressionAccessor
			for _, v := range p.Spec.Validations {
				validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
				messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
			}
			var matcher matchconditions.Matcher
			for i := range p.Spec.MatchConditions {
				match = append(match, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
			}
			if conditions && len(match) > 0 {
				matcher = matchconditions.NewMatcher(compiler.CompileCondition(match, with, environment.NewExpressions), p.Spec.FailurePolicy, "policy", "validate", p.Name)
			}
			out = append(out, compiled{p, validating.NewValidator(
				compiler.CompileCondition(validations, with, environment.NewExpressions), matcher, compiler.CompileCondition(nil, with, environment.NewExpressions),
				compiler.CompileCondition(messages, without, environment.NewExpressions), p.Spec.FailurePolicy, nil)})
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s has no policies", file)
	}
	return out
}

// evaluate returns the messages of what the policy finds wrong with the pod, and fails if an expression does.
func (c *compiled) evaluate(t testing.TB, pod runtime.Object, labels map[string]string, params runtime.Object) []string {
	kind := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	resource := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	attributes := admission.NewAttributesRecord(pod, nil, kind, "team", "web", resource, "", admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "me"})
	versioned := &admission.VersionedAttributes{
		Attributes: attributes, VersionedKind: kind,
		VersionedObject: admission.NewLazyObject(pod), VersionedOldObject: admission.NewLazyObject(nil),
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: labels}}
	if p, ok := params.(*corev1.ConfigMap); ok {
		params = &wrapped{p}
	}
	got := c.validator.Validate(t.Context(), resource, versioned, params, namespace, celconfig.RuntimeCELCostBudget, nil)
	var out []string
	for i, d := range got.Decisions {
		if d.Evaluation == validating.EvalError {
			t.Errorf("%s: validation %d: %s", c.Name, i, d.Message)
		}
		if d.Action == validating.ActionDeny {
			out = append(out, d.Message)
		}
	}
	return out
}

// wrapped is a parameter of a built-in kind as the API server hands it to a ValidatingAdmissionPolicy: it is copied into maps for
// every evaluation.
type wrapped struct{ *corev1.ConfigMap }

// MarshalJSON and UnmarshalJSON are there for the type to be recognised, see UnstructuredConverter of structured-merge-diff.
func (w *wrapped) MarshalJSON() ([]byte, error) { return nil, errors.ErrUnsupported }

// UnmarshalJSON is not called.
func (w *wrapped) UnmarshalJSON([]byte) error { return errors.ErrUnsupported }

// ToUnstructured makes the copy.
func (w *wrapped) ToUnstructured() any {
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w.ConfigMap)
	if err != nil {
		return nil
	}
	return out
}

func pod(t testing.TB, text string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	if p.Spec.SchedulerName == "" {
		p.Spec.SchedulerName = corev1.DefaultSchedulerName // as the API server does before admission
	}
	return p
}

// parameter is the object native policies read, as slipway-webhook keeps it. Nil policies leave it empty.
func parameter(policies []*v1alpha1.WorkloadPolicy, namespaces ...map[string]string) *corev1.ConfigMap {
	p := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.NativeConfigMap}}
	if policies != nil {
		p.Data, _ = rules.NativeData(policies, namespaces, time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))
	}
	return p
}

// policy is a WorkloadPolicy with the defaults of its schema.
func policy(name string, priority int32, change func(*v1alpha1.WorkloadPolicySpec)) *v1alpha1.WorkloadPolicy {
	p := &v1alpha1.WorkloadPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: rules.Builtin()}
	p.Spec.Priority = priority
	if change != nil {
		change(&p.Spec)
	}
	return p
}

func twenty() []*v1alpha1.WorkloadPolicy {
	var out []*v1alpha1.WorkloadPolicy
	for i := range int32(20) {
		name := string('a' + i)
		out = append(out, policy(name, i, func(s *v1alpha1.WorkloadPolicySpec) {
			s.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": name}}
		}))
	}
	return out
}

const inOrder = `{metadata: {name: web, labels: {app: web}}, spec: {schedulerName: slipway, tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}],
  volumes: [{name: token, projected: {}}], containers: [{name: app, image: x, resources: {requests: {cpu: 100m, memory: 1Gi}, limits: {memory: 1Gi}}}, {name: proxy, image: x, resources: {requests: {cpu: 50m, memory: 64Mi}}}]}}`

const outOfOrder = `{metadata: {name: web}, spec: {schedulerName: slipway, containers: [{name: app, image: x, resources: {requests: {cpu: 100m, memory: 1Gi}, limits: {memory: 3Gi}}}]}}`

// What a pod costs the API server, with the number of policies.
func BenchmarkPods(b *testing.B) {
	labels := map[string]string{v1alpha1.ManagedLabel: "true", "team": "c"}
	one := []*v1alpha1.WorkloadPolicy{policy("default", 0, nil)}
	for name, tt := range map[string]struct {
		pod    string
		params *corev1.ConfigMap
	}{
		"in-order/1":          {inOrder, parameter(one, labels)},
		"in-order/20":         {inOrder, parameter(twenty(), labels)},
		"out-of-order/1":      {outOfOrder, parameter(one, labels)},
		"out-of-order/20":     {outOfOrder, parameter(twenty(), labels)},
		"out-of-order/20/new": {outOfOrder, parameter(twenty())},
	} {
		b.Run(name, func(b *testing.B) {
			all, p := compile(b, "pods.yaml", true), pod(b, tt.pod)
			for b.Loop() {
				for i := range all {
					all[i].evaluate(b, p, labels, tt.params)
				}
			}
		})
	}
}

func idsOf(messages []string) []string {
	var out []string
	for _, m := range messages {
		id, _, _ := strings.Cut(strings.TrimPrefix(m, "slipway "), ":")
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}
