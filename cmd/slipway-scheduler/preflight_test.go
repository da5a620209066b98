// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	componentbaseconfig "k8s.io/component-base/config"
)

// TestNeeded checks what the configuration adds to what is always needed.
func TestNeeded(t *testing.T) {
	lead := componentbaseconfig.LeaderElectionConfiguration{LeaderElect: true, ResourceName: "lease", ResourceNamespace: "here"}
	always := len(needed(componentbaseconfig.LeaderElectionConfiguration{}, slipwayOptions{disableDisruption: true}).Rights)
	for name, tc := range map[string]struct {
		lead  componentbaseconfig.LeaderElectionConfiguration
		own   slipwayOptions
		kinds int
		want  []string
	}{
		"several replicas": {lead, slipwayOptions{disableDisruption: true}, 0, []string{`leases.coordination.k8s.io in namespace "here"`, `leases.coordination.k8s.io "lease" in namespace "here"`}},
		"admission":        {componentbaseconfig.LeaderElectionConfiguration{}, slipwayOptions{disableDisruption: true, admissionNamespace: "there"}, 1, []string{"workloadpolicies.slipway.sh"}},
		"disruption":       {componentbaseconfig.LeaderElectionConfiguration{}, slipwayOptions{}, 0, []string{"poddisruptionbudgets.policy"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := needed(tc.lead, tc.own)
			var got []string
			for _, r := range n.Rights[always:] {
				got = append(got, r.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || len(n.Kinds) != tc.kinds {
				t.Errorf("%d kinds, want %d; rights (-want +got):\n%s", len(n.Kinds), tc.kinds, diff)
			}
		})
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
