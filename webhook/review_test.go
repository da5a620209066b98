// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook"
	"github.com/slipway-sh/slipway/webhook/rules"
)

func now() time.Time { return time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC) }

// bench is a handler with what it knows.
type bench struct {
	*webhook.Handler

	index   *webhook.Index
	metrics *webhook.Metrics
}

// newBench returns a handler that knows the inputs; change may alter its options.
func newBench(t testing.TB, in webhook.Inputs, change func(*webhook.Options)) bench {
	t.Helper()
	b := bench{index: webhook.NewIndex(), metrics: webhook.NewMetrics()}
	state := webhook.NewState(in)
	o := webhook.Options{
		State: func() *webhook.State { return state }, Index: b.index, Metrics: b.metrics,
		Clock: clocktesting.NewFakePassiveClock(now()), Native: true,
	}
	if tt, ok := t.(*testing.T); ok {
		o.Log = testr.New(tt)
	}
	if change != nil {
		change(&o)
	}
	b.Handler = webhook.NewHandler(o)
	return b
}

// managed is a namespace "team" in Slipway's care, with the built-in parameters as policy "default".
func managed(change func(*v1alpha1.WorkloadPolicySpec)) webhook.Inputs {
	p := &v1alpha1.WorkloadPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default", CreationTimestamp: metav1.NewTime(now().Add(-time.Hour))}, Spec: rules.Builtin()}
	if change != nil {
		change(&p.Spec)
	}
	return webhook.Inputs{
		Policies: []*v1alpha1.WorkloadPolicy{p},
		Namespaces: []*corev1.Namespace{
			{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{v1alpha1.ManagedLabel: "true"}}},
			{ObjectMeta: metav1.ObjectMeta{Name: "quiet", Labels: map[string]string{v1alpha1.ManagedLabel: "true", v1alpha1.AdmissionLabel: "off"}}},
		},
	}
}

// request is an admission request about YAML.
type request struct {
	kind, object, old string
	op                admissionv1.Operation
	namespace, sub    string
	dryRun            bool
}

func (r request) body(t testing.TB) []byte {
	t.Helper()
	req := &admissionv1.AdmissionRequest{
		UID: "u", Kind: metav1.GroupVersionKind{Kind: r.kind}, Operation: r.op, Namespace: r.namespace, SubResource: r.sub, DryRun: new(r.dryRun),
	}
	if r.kind == "" {
		req.Kind.Kind = "Pod"
	}
	if r.op == "" {
		req.Operation = admissionv1.Create
	}
	if r.namespace == "" {
		req.Namespace = "team"
	}
	req.Object.Raw, req.OldObject.Raw = toJSON(t, r.object), toJSON(t, r.old)
	body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: req})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func toJSON(t testing.TB, text string) []byte {
	t.Helper()
	if text == "" {
		return nil
	}
	if json.Valid([]byte(text)) {
		return []byte(text) // as it is, whatever YAML would make of it
	}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("the test's object is no YAML: %v\n%s", err, text)
	}
	return raw
}

// ask sends a review and returns the answer.
func (b bench) ask(t testing.TB, hook string, r request) *admissionv1.AdmissionResponse {
	t.Helper()
	out, ok := b.Review(t.Context(), hook, r.body(t), time.Minute)
	if !ok {
		t.Fatal("the review was not answered")
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(out, &review); err != nil {
		t.Fatal(err)
	}
	if review.Response == nil || review.Response.UID != "u" {
		t.Fatalf("the answer has no response for the request: %s", out)
	}
	return review.Response
}

// apply patches the object as the API server does.
func apply(t testing.TB, raw []byte, resp *admissionv1.AdmissionResponse) []byte {
	t.Helper()
	if resp.Patch == nil {
		return raw
	}
	p, err := jsonpatch.DecodePatch(resp.Patch)
	if err != nil {
		t.Fatalf("the patch cannot be read: %v\n%s", err, resp.Patch)
	}
	out, err := p.Apply(raw)
	if err != nil {
		t.Fatalf("the patch does not apply: %v\n%s\nto %s", err, resp.Patch, raw)
	}
	return out
}
