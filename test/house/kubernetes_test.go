// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// version runs the script that moves the tree to another release of Kubernetes, without changing anything.
func version(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "../../hack/kubernetes-version.sh", args...).CombinedOutput()
	return string(out), err
}

// Every place that names the release of Kubernetes is found, and what is found is the release the tree is at.
func TestKubernetesVersion(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	now := regexp.MustCompile(`k8s\.io/kubernetes (v1\.\d+\.\d+)`).FindSubmatch(mod)
	if now == nil {
		t.Fatal("go.mod does not require k8s.io/kubernetes")
	}
	if out, err := version(t, string(now[1]), "--dry-run"); err != nil || out != "" {
		t.Errorf("to the release the tree is at there is something to change (%v):\n%s", err, out)
	}
	out, err := version(t, "v1.99.7", "--dry-run")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"+++ b/go.mod", "+\tk8s.io/kubernetes v1.99.7", "+\tk8s.io/api => k8s.io/api v0.99.7", "+\tk8s.io/client-go v0.99.7", "+\tk8s.io/cri-api v0.99.7 // indirect",
		"+appVersion: \"1.99\"", "+kubeVersion: \">= 1.99.0-0\"", "+const minor = 99", "+## Unreleased (Kubernetes 1.99)",
		"+++ b/README.md", "+| Kubernetes | 1.99: ", "+++ b/docs/install.md", "+++ b/test/cluster/cluster_test.go", "+++ b/test/cluster/binaries_test.go",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the difference does not have %q:\n%s", want, out)
		}
	}
}

func TestKubernetesVersionErrors(t *testing.T) {
	for _, args := range [][]string{{}, {""}, {"1.38.0"}, {"v1.38"}, {"v2.0.0"}, {"v1.38.0", "--dry"}, {"v1.38.0-rc.1", "--dry-run"}} {
		if out, err := version(t, args...); err == nil || !strings.Contains(out, "usage: make kubernetes-version VERSION=v1.MINOR.PATCH") {
			t.Errorf("with %q: %v, output %q; want an error that says how it is used", args, err, out)
		}
	}
}
