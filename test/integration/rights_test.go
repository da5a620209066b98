// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-sh/slipway/manifests/install"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// TestLeastRights holds what a stolen token of either process must not give. That what they do is granted is seen by
// every other test of this package: they run with these rights.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b, err := bed.New(ctx, bed.Options{Emulator: ec2emu.Options{Seed: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Errorf("stopping: %v", err)
		}
	})
	// Beyond what neither may: what only the other process needs.
	check := func(account string, more ...request) {
		t.Helper()
		may := mayOf(t, b, account)
		if !may(request{"create", "karpenter.sh", "nodeclaims", ""}) {
			t.Errorf("%s may not create NodeClaims; the account has no rights, and the test shows nothing", account)
		}
		for _, r := range append(more, never()...) {
			if may(r) {
				t.Errorf("%s may %s", account, r)
			}
		}
	}
	check(bed.Scheduler, request{"create", "", "pods", "eviction"}, request{"delete", "", "nodes", ""}, request{"patch", "karpenter.sh", "nodepools", ""})
	check(bed.Controller, request{"create", "", "pods", "binding"}, request{"update", "", "pods", "status"})
	// The bindings have the same names in both installations: this takes the rights of the two accounts over to one.
	joint, err := bed.ReadInstallation(install.Joint)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Cluster.Apply(ctx, joint.Rights); err != nil {
		t.Fatal(err)
	}
	check("slipway")
	roles, err := b.Client.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range roles.Items {
		if strings.HasPrefix(roles.Items[i].Name, "slipway") {
			checkNoWildcards(t, &roles.Items[i])
		}
	}
}

// request is what an account may or may not do.
type request struct{ verb, group, resource, subresource string }

func (r request) String() string {
	return fmt.Sprintf("%s %s in group %q", r.verb, strings.TrimSuffix(r.resource+"/"+r.subresource, "/"), r.group)
}

func never() []request {
	return []request{
		{"get", "", "secrets", ""},
		{"list", "", "secrets", ""},
		{"create", "", "pods", ""},
		{"patch", "", "pods", ""},
		{"update", "", "pods", ""},
		{"create", "", "pods", "exec"},
		{"create", "", "serviceaccounts", "token"},
		{"create", "", "nodes", ""},
		{"get", "", "nodes", "proxy"},
		{"create", "apps", "deployments", ""},
		{"patch", "apps", "daemonsets", ""},
		{"delete", "apps", "deployments", ""},
		{"create", "karpenter.sh", "nodepools", ""},
		{"delete", "karpenter.sh", "nodepools", ""},
		{"create", "karpenter.k8s.aws", "ec2nodeclasses", ""},
		{"delete", "karpenter.k8s.aws", "ec2nodeclasses", ""},
		{"create", "rbac.authorization.k8s.io", "clusterroles", ""},
		{"escalate", "rbac.authorization.k8s.io", "clusterroles", ""},
		{"bind", "rbac.authorization.k8s.io", "clusterroles", ""},
		{"impersonate", "", "users", ""},
		{"create", "certificates.k8s.io", "certificatesigningrequests", ""},
	}
}

// mayOf returns a function that asks the API server what a service account may do.
func mayOf(t *testing.T, b *bed.Bed, account string) func(request) bool {
	t.Helper()
	config, err := b.As(account)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return func(r request) bool {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: "default", Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource,
			},
		}}
		got, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Status.Allowed
	}
}

// checkNoWildcards: a rule that grants "*" grants what does not exist yet.
func checkNoWildcards(t *testing.T, role *rbacv1.ClusterRole) {
	t.Helper()
	for _, rule := range role.Rules {
		// How many pods an owner of any kind wants is read from its scale subresource, as the HPA controller does.
		if slices.Equal(rule.Resources, []string{"*/scale"}) && slices.Equal(rule.Verbs, []string{"get"}) {
			continue
		}
		for _, words := range [][]string{rule.Verbs, rule.APIGroups} {
			for _, word := range words {
				if word == "*" {
					t.Errorf("ClusterRole %s has a rule with \"*\": %v", role.Name, rule)
				}
			}
		}
	}
}
