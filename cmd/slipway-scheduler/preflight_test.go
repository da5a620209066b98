// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	componentbaseconfig "k8s.io/component-base/config"
)

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
		asked := right{group: r.Group, resource: resource, namespace: r.Namespace, name: r.Name}
		review.Status.Allowed = !slices.Contains(denied, r.Verb+" "+asked.String())
		return true, review, nil
	})
	return c
}

func TestCheck(t *testing.T) {
	all := map[string][]string{"karpenter.sh/v1": {"NodePool", "NodeClaim"}, "karpenter.k8s.aws/v1": {"EC2NodeClass"}}
	lead := componentbaseconfig.LeaderElectionConfiguration{LeaderElect: true, ResourceName: "slipway-scheduler", ResourceNamespace: "slipway-system"}
	for name, tc := range map[string]struct {
		kinds  map[string][]string
		denied []string
		want   []string
		not    []string
	}{
		"nothing is missing": {kinds: all},
		"a group":            {kinds: map[string][]string{"karpenter.sh/v1": all["karpenter.sh/v1"]}, want: []string{"EC2NodeClass of karpenter.k8s.aws/v1"}, not: []string{"NodePool"}},
		"a kind":             {kinds: map[string][]string{"karpenter.sh/v1": {"NodePool"}, "karpenter.k8s.aws/v1": {"EC2NodeClass"}}, want: []string{"NodeClaim of karpenter.sh/v1"}, not: []string{"NodePool"}},
		"rights":             {kinds: all, denied: []string{"create nodeclaims.karpenter.sh", "list pods", "patch nodeclaims/status.karpenter.sh"}, want: []string{"create nodeclaims.karpenter.sh, patch nodeclaims/status.karpenter.sh", "list pods"}, not: []string{"watch"}},
		"a lease":            {kinds: all, denied: []string{`update leases.coordination.k8s.io "slipway-scheduler" in namespace "slipway-system"`}, want: []string{`update leases.coordination.k8s.io "slipway-scheduler" in namespace "slipway-system"`}, not: []string{"create", "get "}},
		"policies":           {kinds: all, denied: []string{"watch workloadpolicies.slipway.sh"}, want: []string{"watch workloadpolicies.slipway.sh"}},
		"budgets":            {kinds: all, denied: []string{"list poddisruptionbudgets.policy"}, want: []string{"list poddisruptionbudgets.policy"}},
		"both":               {kinds: map[string][]string{}, denied: []string{"watch nodes"}, want: []string{"NodePool", "NodeClaim", "EC2NodeClass", "watch nodes"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := check(t.Context(), served(tc.kinds, tc.denied...), slices.Concat(needed(), conditional(lead, slipwayOptions{admissionNamespace: "slipway-system"})))
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
	if err := check(t.Context(), c, needed()); err == nil || !strings.Contains(err.Error(), "asking the API server for permissions: connection refused") {
		t.Errorf("check() = %v, want the error of the request, not a list of rights", err)
	}
}

func TestCheckConfig(t *testing.T) {
	const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	const ours = "- schedulerName: slipway\n  plugins: {multiPoint: {enabled: [{name: Slipway}]}}\n"
	for name, tc := range map[string]struct {
		config string
		want   string
	}{
		"good":                    {head + "profiles:\n" + ours, ""},
		"one of two":              {head + "profiles:\n- schedulerName: other\n" + ours, ""},
		"nobody enables it":       {head + "profiles:\n- schedulerName: other\n", `no profile enables plugin "Slipway"`},
		"an unknown argument":     {head + "profiles:\n" + ours + "  pluginConfig: [{name: Slipway, args: {lookahed: 1}}]\n", `reading profile "slipway"`},
		"two with one batch":      {head + "profiles:\n" + ours + "- schedulerName: second\n  plugins: {multiPoint: {enabled: [{name: Slipway}]}}\n  pluginConfig: [{name: Slipway, args: {provisionFirst: true}}]\n", ""},
		"two batches":             {head + "profiles:\n" + ours + "- schedulerName: second\n  plugins: {multiPoint: {enabled: [{name: Slipway}]}}\n  pluginConfig: [{name: Slipway, args: {batchMax: 1s, lookAhead: 7}}]\n", `profiles[1].pluginConfig, plugin "Slipway": batchMax, lookAhead differs`},
		"a gate for ever":         {head + "profiles:\n" + ours + "  pluginConfig: [{name: Slipway, args: {gateDeadline: 10000h}}]\n", "gateDeadline"},
		"an unknown field beside": {head + "profils:\n" + ours, "profils"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(file, []byte(tc.config), 0o600); err != nil {
				t.Fatal(err)
			}
			err := checkConfig(t.Context(), file)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("checkConfig() = %v, want %q in it", err, tc.want)
			}
		})
	}
}
