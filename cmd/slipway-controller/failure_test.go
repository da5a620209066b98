// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-sh/slipway/provisioner/claim"
)

// bare is an API server without custom resources, which denies all.
func bare(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews") {
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":false}}`)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// What is wrong with cluster or account ends the process with what is wrong and what to do.
func TestBadSurroundings(t *testing.T) {
	good := map[string]string{"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
	tests := map[string]struct {
		host string
		env  map[string]string
		want []string
	}{
		"no answer":      {"http://127.0.0.1:1", good, []string{"127.0.0.1:1 does not answer: is this the right --context or --kubeconfig"}},
		"nothing there":  {bare(t), good, []string{"does not serve NodePool of karpenter.sh/v1: apply its CustomResourceDefinition", "the process's user may not list nodepools.karpenter.sh", "bind the roles"}},
		"no region":      {"http://127.0.0.1:1", map[string]string{"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}, []string{"set AWS_REGION"}},
		"no credentials": {"http://127.0.0.1:1", map[string]string{"AWS_REGION": "us-east-1"}, []string{"there are no AWS credentials: give the pod's service account a role"}},
		"wrong profile":  {"http://127.0.0.1:1", map[string]string{"AWS_REGION": "us-east-1", "AWS_PROFILE": "nobody"}, []string{"reading the AWS configuration (AWS_PROFILE"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
				t.Setenv(name, tt.env[name])
			}
			t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
			t.Setenv("AWS_CONFIG_FILE", os.DevNull)
			t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
			file := filepath.Join(t.TempDir(), "kubeconfig")
			text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: x}}]}", tt.host)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := newManager(t.Context(), options{ClusterName: "c", Kubeconfig: file, KubeClientQPS: 100, KubeClientBurst: 100, StartupTimeout: 200 * time.Millisecond}, claim.Options{})
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want one with %q", err, want)
				}
			}
		})
	}
}
