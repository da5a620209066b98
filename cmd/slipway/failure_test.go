// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answers is an API server that says the same to everything.
func answers(t *testing.T, code int32, reason metav1.StatusReason) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(code))
		status := metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason,
			Message: "said of " + r.URL.Path,
		}
		_ = json.NewEncoder(w).Encode(status)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// empty is an API server without custom resources and without objects.
func empty(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/version":
			fmt.Fprint(w, `{"major":"1","minor":"37"}`)
		case r.URL.Path == "/api":
			fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
		case r.URL.Path == "/apis":
			fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
		case r.URL.Path == "/api/v1":
			fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","namespaced":true,"kind":"Pod","verbs":["list"]},{"name":"nodes","kind":"Node","verbs":["list"]}]}`)
		case strings.HasPrefix(r.URL.Path, "/api/v1/"):
			fmt.Fprint(w, `{"kind":"List","apiVersion":"v1","items":[]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// Whatever is wrong with the way to a cluster is said in one sentence, with what to do, by every command that asks one.
func TestBadClusters(t *testing.T) {
	commands := map[string]struct {
		command func() *cobra.Command
		args    []string
	}{
		"explain":          {explainCommand, []string{"nodepool", "general"}},
		"plan":             {planCommand, []string{"--live"}},
		"plan consolidate": {planCommand, []string{"--live", "--consolidate"}},
		"top":              {topCommand, []string{"--once"}},
		"lint":             {lintCommand, []string{"-"}},
		"migrate check":    {migrateCommand, []string{"check"}},
		"migrate from CA":  {migrateCommand, []string{"check", "--from=cluster-autoscaler"}},
		"migrate takeover": {migrateCommand, []string{"takeover"}},
		"migrate handback": {migrateCommand, []string{"handback"}},
	}
	const gone = "http://127.0.0.1:1"
	tests := map[string]struct {
		host    string
		context string
		want    string
		// but are commands to which this is nothing wrong.
		but []string
	}{
		"wrong context":  {host: gone, context: "nowhere", want: `context "nowhere" does not exist`},
		"no answer":      {host: gone, want: "does not answer: is this the right --context"},
		"not logged in":  {host: answers(t, http.StatusUnauthorized, metav1.StatusReasonUnauthorized), want: "does not accept the kubeconfig's credentials: log in again"},
		"no permissions": {host: answers(t, http.StatusForbidden, metav1.StatusReasonForbidden), want: "the kubeconfig's user may not do this"},
		"no definitions": {host: empty(t), want: "does not have Karpenter's custom resources", but: []string{"migrate from CA", "migrate check", "migrate takeover", "migrate handback"}},
	}
	for name, tt := range tests {
		for what, c := range commands {
			t.Run(name+"/"+what, func(t *testing.T) {
				if slices.Contains(tt.but, what) { // these say it as a finding, TestCheckTakeover
					return
				}
				file := filepath.Join(t.TempDir(), "kubeconfig")
				kubeconfig := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: x}}]}", tt.host)
				if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
					t.Fatal(err)
				}
				cmd := c.command()
				cmd.SetArgs(append(c.args, "--kubeconfig="+file, "--context="+cmp.Or(tt.context, "c")))
				cmd.SetIn(strings.NewReader(""))
				cmd.SetOut(io.Discard)
				cmd.SetErr(io.Discard)
				cmd.SilenceErrors, cmd.SilenceUsage = true, true
				err := cmd.ExecuteContext(t.Context())
				if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("error %v, want one line with %q", err, tt.want)
				}
			})
		}
	}
}
