// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook"
)

func TestValidate(t *testing.T) {
	contradiction := `
metadata: {name: general}
spec: {limits: {cpu: 100}, template: {spec: {requirements: [{key: kubernetes.io/arch, operator: In, values: [amd64]}, {key: kubernetes.io/arch, operator: In, values: [arm64]}]}}}`
	const refusal = "slipway N003: spec.template.spec.requirements[kubernetes.io/arch]: In [amd64] and In [arm64] exclude each other. Remove one of them."
	everything := func(o *webhook.Options) { o.Native = false }
	tests := map[string]struct {
		policy   func(*v1alpha1.WorkloadPolicySpec)
		inputs   func(*webhook.Inputs)
		options  func(*webhook.Options)
		request  request
		denied   string
		warnings []string
		audit    map[string]string
	}{
		"fine": {request: request{kind: "Deployment", object: "spec: {template: {spec: {containers: [{name: api}]}}}"}},
		"what can never work is refused without a policy": {
			inputs: func(in *webhook.Inputs) { in.Policies = nil }, request: request{kind: "NodePool", object: contradiction},
			denied: refusal, audit: map[string]string{"rules": "N003", "policy": ""},
		},
		"an update that leaves it as it was is not": {
			request:  request{kind: "NodePool", op: admissionv1.Update, object: contradiction, old: contradiction},
			warnings: []string{refusal + " [policy default]"}, audit: map[string]string{"rules": "N003", "policy": "default"},
		},
		"native rules are the API server's": {request: request{object: "metadata: {annotations: {karpenter.sh/do-not-disrupt: maybe}}\nspec: {schedulerName: slipway, containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}}}]}"}},
		"unless it has none": {
			options: everything,
			request: request{object: "metadata: {annotations: {karpenter.sh/do-not-disrupt: maybe}}\nspec: {schedulerName: slipway, containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}}}]}"},
			denied:  `slipway D001: metadata.annotations[karpenter.sh/do-not-disrupt]: "maybe" is not "true" or a duration such as 4h; it would be ignored. Use "true" or a duration such as 4h, or remove the annotation. [policy default]`,
			audit:   map[string]string{"rules": "D001", "policy": "default"},
		},
		"a resize": {
			options: everything, request: request{op: admissionv1.Update, sub: "resize", object: "spec: {containers: [{name: a, resources: {requests: {cpu: 1m, memory: 1Gi}}}]}"},
			warnings: []string{"slipway R009: spec.containers[a]: resize to cpu request 1m, below the floor 10m. Ask for what the container uses. [policy default]"},
			audit:    map[string]string{"rules": "R009", "policy": "default"},
		},
		"a deletion reads the old object": {
			options: everything, request: request{kind: "NodePool", op: admissionv1.Delete, old: "metadata: {name: general}\nspec: {limits: {cpu: 1}}\nstatus: {nodes: 3}"},
			denied: `slipway N012: metadata.annotations[slipway.sh/confirm-delete]: "general" has 3 nodes that would go with it. Annotate it with slipway.sh/confirm-delete=general first. [policy default]`,
			audit:  map[string]string{"rules": "N012", "policy": "default"},
		},
		"a kind without rules": {request: request{kind: "ConfigMap", object: "data: {a: b}"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := managed(tt.policy)
			if tt.inputs != nil {
				tt.inputs(&in)
			}
			resp := newBench(t, in, tt.options).ask(t, "validate", tt.request)
			got := ""
			if resp.Result != nil {
				got = resp.Result.Message
			}
			if got != tt.denied || resp.Allowed != (tt.denied == "") {
				t.Errorf("allowed %t, message\n%q, want\n%q", resp.Allowed, got, tt.denied)
			}
			var warnings []string
			for _, w := range resp.Warnings { // hygiene of the pool, tested elsewhere
				if !strings.Contains(w, "N009") && !strings.Contains(w, "N006") {
					warnings = append(warnings, w)
				}
			}
			if diff := cmp.Diff(tt.warnings, warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if tt.options == nil {
				if diff := cmp.Diff(tt.audit, resp.AuditAnnotations); diff != "" {
					t.Errorf("audit annotations (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// A pod whose owner ran is never refused; the first pod of a new owner is.
func TestReplacementsAreNotRefused(t *testing.T) {
	b := newBench(t, managed(func(s *v1alpha1.WorkloadPolicySpec) { s.Rules = map[string]v1alpha1.RuleMode{"D004": v1alpha1.Enforce} }),
		func(o *webhook.Options) { o.Native = false })
	owned := request{object: `
metadata: {annotations: {karpenter.sh/do-not-disrupt: 240h}, ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: db, uid: s1, controller: true}]}
spec: {schedulerName: slipway, containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}}}]}`}
	b.index.Controllers().OnAdd(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "s1", CreationTimestamp: metav1.NewTime(now())}}, true)
	if b.ask(t, "mutate", owned); b.ask(t, "validate", owned).Allowed {
		t.Error("the first pod of a new owner was allowed")
	}
	ran := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p", Namespace: "team", OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", UID: "s1", Controller: new(true)}}}}
	b.index.Pods(now).OnAdd(ran, false)
	b.index.Pods(now).OnDelete(ran)
	if resp := b.ask(t, "validate", owned); !resp.Allowed {
		t.Errorf("the replacement of a pod was refused: %s", resp.Result.Message)
	}
	if got := testutil.ToFloat64(b.metrics.Grandfathered.WithLabelValues("D004")); got != 1 {
		t.Errorf("grandfathered_total is %g, want 1", got)
	}
}

func TestFailsOpen(t *testing.T) {
	pod := request{object: "spec: {containers: [{name: api}]}"}
	huge := request{object: "metadata: {annotations: {a: " + strings.Repeat("x", 2<<20) + "}}\nspec: {containers: [{name: api}]}"}
	tests := map[string]struct {
		state   func() *webhook.State
		request request
		reason  string
		warns   bool
	}{
		"cold cache": {state: func() *webhook.State { return nil }, request: pod, reason: "cold_cache"},
		"oversized":  {request: huge, reason: "oversized", warns: true},
		"unreadable": {request: request{object: "spec: {containers: 7}"}, reason: "unreadable"},
		// A state without content is what a bug in building one would leave: using it panics.
		"panic": {state: func() *webhook.State { return (*webhook.State)(nil).Broken() }, request: pod, reason: "panic"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, hook := range []string{"mutate", "validate"} {
				b := newBench(t, managed(nil), func(o *webhook.Options) {
					if tt.state != nil {
						o.State = tt.state
					}
				})
				resp := b.ask(t, hook, tt.request)
				if !resp.Allowed || resp.Patch != nil || (len(resp.Warnings) > 0) != tt.warns {
					t.Errorf("%s: %+v", hook, resp)
				}
				if got := testutil.ToFloat64(b.metrics.FailedOpen.WithLabelValues(tt.reason)); got != 1 {
					t.Errorf("%s: failed_open_total{%s} is %g, want 1", hook, tt.reason, got)
				}
			}
		})
	}
}

// An answer that does not come in time is "allowed".
func TestDeadline(t *testing.T) {
	b := newBench(t, managed(nil), nil)
	out, ok := b.Review(t.Context(), "mutate", request{object: "spec: {containers: [{name: api}]}"}.body(t), 0)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(out, &review); !ok || err != nil || !review.Response.Allowed {
		t.Fatalf("answer is %s (%t, %v), want allowed", out, ok, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := b.Review(ctx, "validate", request{object: "spec: {containers: [{name: api}]}"}.body(t), time.Minute); !ok {
		t.Error("a cancelled request was not answered")
	}
}

func TestServeHTTP(t *testing.T) {
	b := newBench(t, managed(nil), nil)
	server := httptest.NewServer(b.Handler)
	defer server.Close()
	tests := map[string]struct {
		path, body string
		status     int
	}{
		"a review":     {webhook.MutatePath + "?timeout=2s", string(request{object: "spec: {containers: [{name: api}]}"}.body(t)), http.StatusOK},
		"no review":    {webhook.ValidatePath, "{}", http.StatusBadRequest},
		"no request":   {webhook.ValidatePath, `{"kind":"AdmissionReview","request":null}`, http.StatusBadRequest},
		"nonsense":     {webhook.MutatePath, "\x00", http.StatusBadRequest},
		"endless":      {webhook.MutatePath, strings.Repeat(" ", 7<<20), http.StatusRequestEntityTooLarge},
		"another path": {"/", "", http.StatusNotFound},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+tt.path, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != tt.status {
				t.Errorf("status is %d (%v), want %d", resp.StatusCode, err, tt.status)
			}
		})
	}
}
