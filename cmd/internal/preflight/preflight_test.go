// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func needs() Needs {
	return Needs{
		Kinds: map[string][]string{"slipway.sh/v1alpha1": {"WorkloadPolicy"}},
		Rights: []Right{
			{Group: "karpenter.sh", Resource: "nodeclaims", Verbs: []string{"create"}},
			{Group: "karpenter.sh", Resource: "nodeclaims/status", Verbs: []string{"patch"}},
			{Resource: "pods", Verbs: []string{"list", "watch"}},
			{Resource: "nodes", Verbs: []string{"list", "watch"}},
			{Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"get", "update"}, Namespace: "slipway-system", Name: "slipway-scheduler"},
		},
	}
}

// served is a cluster with the kinds, by group version, that refuses the user what is in denied ("verb resource.group").
func served(kinds map[string][]string, denied ...string) *fake.Clientset {
	c := fake.NewClientset()
	for gv, names := range kinds {
		list := &metav1.APIResourceList{GroupVersion: gv}
		for _, kind := range names {
			list.APIResources = append(list.APIResources, metav1.APIResource{Kind: kind, Name: strings.ToLower(kind) + "s"})
		}
		c.Resources = append(c.Resources, list)
	}
	c.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
		r := review.Spec.ResourceAttributes
		resource := r.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		asked := Right{Group: r.Group, Resource: resource, Namespace: r.Namespace, Name: r.Name}
		review.Status.Allowed = !slices.Contains(denied, r.Verb+" "+asked.String())
		return true, review, nil
	})
	return c
}

func TestCheck(t *testing.T) {
	all := map[string][]string{"karpenter.sh/v1": {"NodePool", "NodeClaim"}, "karpenter.k8s.aws/v1": {"EC2NodeClass"}, "slipway.sh/v1alpha1": {"WorkloadPolicy"}}
	for name, tc := range map[string]struct {
		kinds  map[string][]string
		denied []string
		want   []string
		not    []string
	}{
		"nothing is missing": {kinds: all},
		"a group":            {kinds: map[string][]string{"karpenter.sh/v1": all["karpenter.sh/v1"]}, want: []string{"EC2NodeClass of karpenter.k8s.aws/v1"}, not: []string{"NodePool"}},
		"a kind":             {kinds: map[string][]string{"karpenter.sh/v1": {"NodePool"}, "karpenter.k8s.aws/v1": {"EC2NodeClass"}, "slipway.sh/v1alpha1": {"WorkloadPolicy"}}, want: []string{"NodeClaim of karpenter.sh/v1"}, not: []string{"NodePool"}},
		"rights":             {kinds: all, denied: []string{"create nodeclaims.karpenter.sh", "list pods", "patch nodeclaims/status.karpenter.sh"}, want: []string{"create nodeclaims.karpenter.sh, patch nodeclaims/status.karpenter.sh", "list pods"}, not: []string{"watch"}},
		"a kind of its own":  {kinds: map[string][]string{"karpenter.sh/v1": all["karpenter.sh/v1"], "karpenter.k8s.aws/v1": all["karpenter.k8s.aws/v1"]}, want: []string{"WorkloadPolicy of slipway.sh/v1alpha1"}, not: []string{"NodePool", "EC2NodeClass"}},
		"a lease":            {kinds: all, denied: []string{`update leases.coordination.k8s.io "slipway-scheduler" in namespace "slipway-system"`}, want: []string{`update leases.coordination.k8s.io "slipway-scheduler" in namespace "slipway-system"`}, not: []string{"get "}},
		"both":               {kinds: map[string][]string{}, denied: []string{"watch nodes"}, want: []string{"NodePool", "NodeClaim", "EC2NodeClass", "watch nodes"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := check(t.Context(), served(tc.kinds, tc.denied...), needs())
			if (err != nil) != (len(tc.want) > 0) {
				t.Fatalf("check() = %v, want an error: %v", err, len(tc.want) > 0)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error does not name %q:\n%v", want, err)
				}
			}
			for _, not := range tc.not {
				if strings.Contains(err.Error(), not) {
					t.Errorf("error names %q, which is there:\n%v", not, err)
				}
			}
		})
	}
}

func TestCheckWithoutAnAnswer(t *testing.T) {
	c := served(map[string][]string{"karpenter.sh/v1": {"NodePool", "NodeClaim"}, "karpenter.k8s.aws/v1": {"EC2NodeClass"}})
	c.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	if err := check(t.Context(), c, needs()); err == nil || !strings.Contains(err.Error(), "asking the API server for permissions: connection refused") {
		t.Errorf("check() = %v, want the error of the request, not a list of rights", err)
	}
}
