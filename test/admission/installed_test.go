// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

// What slipway-webhook has done so far it may do, and a stolen token of it gives little more.
func (a *apiserver) testRights(t *testing.T) {
	log, err := os.ReadFile(filepath.Join(a.Dir(), "slipway-webhook.log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "forbidden") {
			t.Errorf("slipway-webhook did what the installation does not grant: %s", line)
		}
	}
	config, err := a.User("system:serviceaccount:slipway-system:slipway-webhook", "system:serviceaccounts", "system:serviceaccounts:slipway-system")
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	may := func(verb, group, resource, namespace, name string) bool {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: resource, Name: name},
		}}
		got, err := kube.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Status.Allowed
	}
	if !may("create", "", "pods", "slipway-canary", "") {
		t.Error("slipway-webhook may not create dry-run pods; the account has no rights, and the test shows nothing")
	}
	for _, r := range [][5]string{
		{"create", "", "pods", "team", ""},
		{"create", "", "pods", "slipway-system", ""},
		{"patch", "", "pods", "slipway-canary", ""},
		{"get", "", "secrets", "slipway-system", "another"},
		{"list", "", "secrets", "slipway-system", ""},
		{"get", "", "secrets", "team", "slipway-webhook-ca"},
		{"get", "", "configmaps", "team", ""},
		{"patch", "", "configmaps", "slipway-system", ""},
		{"patch", "", "namespaces", "", "team"},
		{"patch", "", "nodes", "", ""},
		{"patch", "karpenter.sh", "nodepools", "", ""},
		{"patch", "slipway.sh", "workloadpolicies", "", ""},
		{"patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "another"},
		{"create", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "", ""},
		{"delete", "admissionregistration.k8s.io", "validatingadmissionpolicies", "", ""},
		{"update", "coordination.k8s.io", "leases", "slipway-system", "slipway-scheduler"},
		{"create", "rbac.authorization.k8s.io", "clusterroles", "", ""},
	} {
		if may(r[0], r[1], r[2], r[3], r[4]) {
			t.Errorf("slipway-webhook may %s %s.%s %q in namespace %q", r[0], r[2], r[1], r[4], r[3])
		}
	}
}

// Native policies act with the policy that holds: the strongest that selects the namespace, the one its label names, default,
// or none.
func (a *apiserver) testChoice(t *testing.T) {
	policies := v1alpha1.GroupVersion().WithResource("workloadpolicies")
	remove := func(name string) {
		t.Helper()
		if err := a.client.Resource(policies).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	a.apply(t, `
apiVersion: v1
kind: Namespace
metadata: {name: named, labels: {slipway.sh/managed: "true", slipway.sh/policy: named}}
---
apiVersion: slipway.sh/v1alpha1
kind: WorkloadPolicy
metadata: {name: strict}
spec:
  priority: 10
  schedulerName: strict
  namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [team, named]}]}
  rules: {D002: Enforce}
---
apiVersion: slipway.sh/v1alpha1
kind: WorkloadPolicy
metadata: {name: named}
spec: {schedulerName: named, namespaceSelector: {matchLabels: {nobody: has-this}}, rules: {D002: "Off"}}
`)
	if err := a.AwaitNamespace(t.Context(), "named"); err != nil {
		t.Fatal(err)
	}
	old := podOf(`, annotations: {karpenter.sh/do-not-evict: "true"}`, "")
	inNamed := func(text string) string { return strings.Replace(text, "namespace: team", "namespace: named", 1) }
	expect := func(what, object string, want outcome) {
		t.Helper()
		a.eventually(t, what, func(ctx context.Context) (bool, string) {
			got, warnings, err := a.create(ctx, parse(t, object), true)
			now := outcome{warns: nativeFindings(warnings...)}
			if err != nil {
				now.denies = nativeFindings(err.Error())
			} else if got.GetKind() == "Pod" {
				now.scheduler = scheduler(got)
			}
			return now.equal(want), fmt.Sprintf("%+v %v %q", now, err, warnings)
		})
	}
	expect("the strongest policy refuses", old, outcome{denies: []string{"D002 strict"}})
	expect("the strongest policy gives its scheduler", podOf("", ""), outcome{scheduler: "strict"})
	expect("the policy a label names is silent", inNamed(old), outcome{scheduler: "named"})
	remove("strict")
	expect("default holds again", old, outcome{warns: []string{"D002 default"}, scheduler: "slipway"})
	for _, name := range []string{"default", "rival", "named"} {
		remove(name)
	}
	wrong := podOf(protected+`"yes"}`, "")
	expect("without a policy there are warnings only", wrong, outcome{warns: []string{"D001"}, scheduler: "default-scheduler"})
	expect("the name of a policy that is gone is no policy", inNamed(wrong), outcome{warns: []string{"D001"}, scheduler: "default-scheduler"})
	expect("what can never work is refused", poolOf("2", strings.Replace(whole, "[spot]", "[on_demand]", 1)), outcome{denies: []string{"N004"}})
}

// outcome is what native policies do with an object: rules with the policy they name, and the pod's scheduler.
type outcome struct {
	denies, warns []string
	scheduler     string
}

func (o outcome) equal(p outcome) bool {
	return slices.Equal(o.denies, p.denies) && slices.Equal(o.warns, p.warns) && o.scheduler == p.scheduler
}

// nativeFindings are those about what pods and pools have in texts, as "RULE policy"; requests that are filled in are not among
// them, they are the webhook's.
func nativeFindings(texts ...string) []string {
	var out []string
	for _, text := range texts {
		for _, id := range rulesIn(text) {
			_, policy, _ := strings.Cut(text, "[policy ")
			policy, _, _ = strings.Cut(policy, "]")
			if id[0] == 'D' || id == "N004" {
				out = append(out, strings.TrimSpace(id+" "+policy))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
