// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/manifests/config"
	"github.com/slipway-sh/slipway/manifests/install"
)

// TestInstalledConfig: who installs the chart runs what who starts the binary without --config runs.
func TestInstalledConfig(t *testing.T) {
	var want any
	if err := yaml.Unmarshal(config.Scheduler, &want); err != nil {
		t.Fatal(err)
	}
	for name, manifests := range map[string][]byte{"joint": install.Joint, "split": install.Split} {
		in, err := ReadInstallation(manifests)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got any
		if err := yaml.Unmarshal(in.SchedulerConfig, &got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: configuration differs from manifests/config/scheduler.yaml (-default +installed):\n%s", name, diff)
		}
	}
}

func TestReadInstallation(t *testing.T) {
	whole := string(install.Split)
	tests := map[string]struct {
		manifests string
		want      string // in the error
	}{
		"nothing":       {"", "no ConfigMap with scheduler.yaml"},
		"no controller": {strings.ReplaceAll(whole, "- name: controller", "- name: other"), "no Deployment runs slipway-controller"},
		"unknown field": {strings.ReplaceAll(whole, "imagePullPolicy:", "imagePulPolicy:"), `unknown field "imagePulPolicy"`},
		"not YAML":      {"a: [", "reading the installation"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ReadInstallation([]byte(tt.manifests))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// The standby is started as the scheduler it takes over from: with the dry runs of the split installation, too.
func TestStandbyIsASecondReplica(t *testing.T) {
	in, err := ReadInstallation(install.Split)
	if err != nil {
		t.Fatal(err)
	}
	first := in.command(Scheduler, Scheduler, "path", []string{"--x"}, []string{"A=b"})
	second := in.command(Standby, Scheduler, "path", []string{"--x"}, []string{"A=b"})
	if !slices.Contains(first.Args, "--dry-run") || !slices.Contains(first.Args, "--x") || !slices.Contains(first.Env, "A=b") {
		t.Fatalf("the scheduler is started with %q, %q", first.Args, first.Env)
	}
	if diff := cmp.Diff(first.Args, second.Args); diff != "" || second.Name != Standby {
		t.Errorf("the standby is %q, started with (-scheduler +standby):\n%s", second.Name, diff)
	}
	if diff := cmp.Diff(first.Env, second.Env); diff != "" {
		t.Errorf("environment (-scheduler +standby):\n%s", diff)
	}
}
