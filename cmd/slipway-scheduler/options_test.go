// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"

	"github.com/slipway-sh/slipway/scheduler"
)

func TestSlipwayOptions(t *testing.T) {
	for _, tc := range []struct {
		name    string
		env     map[string]string
		args    []string
		want    slipwayOptions
		wantErr []string
	}{
		{name: "defaults", args: []string{"--cluster-name=demo"}, want: slipwayOptions{clusterName: "demo", vmMemoryOverhead: 0.075, startupTimeout: 30 * time.Second, karpenterLease: "karpenter-leader-election"}},
		{
			name: "environment",
			env: map[string]string{
				"CLUSTER_NAME": "demo", "CLUSTER_ENDPOINT": "https://api", "CLUSTER_CA_BUNDLE": "Q0E=",
				"VM_MEMORY_OVERHEAD_PERCENT": "0.1", "RESERVED_ENIS": "1", "ISOLATED_VPC": "true",
			},
			want: slipwayOptions{clusterName: "demo", clusterEndpoint: "https://api", clusterCABundle: "Q0E=", vmMemoryOverhead: 0.1, reservedENIs: 1, isolatedVPC: true, startupTimeout: 30 * time.Second, karpenterLease: "karpenter-leader-election"},
		},
		{
			name: "flag over environment", env: map[string]string{"CLUSTER_NAME": "other"}, args: []string{"--cluster-name=demo"},
			want: slipwayOptions{clusterName: "demo", vmMemoryOverhead: 0.075, startupTimeout: 30 * time.Second, karpenterLease: "karpenter-leader-election"},
		},
		{
			name: "all wrong at once", args: []string{"--cluster-endpoint=http://api", "--vm-memory-overhead-percent=1", "--reserved-enis=-1", "--startup-timeout=0s"},
			wantErr: []string{"--cluster-name (CLUSTER_NAME)", "--cluster-endpoint", "--vm-memory-overhead-percent", "--reserved-enis", "--startup-timeout"},
		},
		{
			name: "unreadable environment", env: map[string]string{"CLUSTER_NAME": "demo", "RESERVED_ENIS": "one", "ISOLATED_VPC": "maybe"},
			wantErr: []string{"RESERVED_ENIS", "ISOLATED_VPC"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got slipwayOptions
			flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
			err := got.add(flags, func(name string) string { return tc.env[name] })
			err = errors.Join(err, flags.Parse(tc.args), got.validate())
			if (err != nil) != (len(tc.wantErr) > 0) {
				t.Fatalf("error = %v, want one: %v", err, len(tc.wantErr) > 0)
			}
			for _, want := range tc.wantErr {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not name %q", err, want)
				}
			}
			if err == nil {
				if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(slipwayOptions{})); diff != "" {
					t.Errorf("options (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestDefaultConfig reads the embedded configuration as kube-scheduler will.
func TestDefaultConfig(t *testing.T) {
	newCommand() // chooses the gates before the options close them
	opts := options.NewOptions()
	forget, err := useDefaultConfig(opts, "/etc/kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := options.LoadConfigFromFile(klog.Background(), opts.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := validation.ValidateKubeSchedulerConfiguration(cfg); err != nil {
		t.Fatal(err)
	}
	type facts struct {
		Kubeconfig, Lease, Namespace, Scheduler string
		QPS                                     float32
		MaxBackoff                              time.Duration
	}
	want := facts{"/etc/kubeconfig", "slipway-scheduler", "slipway-system", "slipway", -1, 2 * time.Second}
	got := facts{
		cfg.ClientConnection.Kubeconfig, cfg.LeaderElection.ResourceName, cfg.LeaderElection.ResourceNamespace,
		cfg.Profiles[0].SchedulerName, cfg.ClientConnection.QPS, time.Duration(cfg.PodMaxBackoffSeconds) * time.Second,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if _, enabled, err := scheduler.ArgsOf(cfg.Profiles[0]); err != nil || !enabled {
		t.Errorf("plugin enabled = %v with error %v, want enabled", enabled, err)
	}
	forget()
	if _, err := os.Stat(opts.ConfigFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there (%v), want it gone once it was read", err)
	}
}

func TestAsyncAPICallsAreOnByDefault(t *testing.T) {
	cmd := newCommand()
	if err := cmd.PersistentPreRunE(cmd, nil); err != nil {
		t.Fatal(err)
	}
	if !utilfeature.DefaultFeatureGate.Enabled(features.SchedulerAsyncAPICalls) {
		t.Error("SchedulerAsyncAPICalls is off, want it on unless a flag turns it off")
	}
}

// Karpenter's gates are known, by flag and by its environment variable; what neither knows is refused.
func TestKarpentersGates(t *testing.T) {
	registry := compatibility.DefaultComponentGlobalsRegistry
	off := func() {
		registry.Reset() // it remembers flags beyond the command they belong to
		if err := utilfeature.DefaultMutableFeatureGate.Set("NodeRepair=false,SpotToSpotConsolidation=false"); err != nil {
			t.Error(err)
		}
	}
	newCommand() // makes the gates known
	t.Cleanup(off)
	for name, tc := range map[string]struct {
		env, flag string
		want      bool
		wantErr   string
	}{
		"neither":              {},
		"flag":                 {flag: "NodeRepair=true,SpotToSpotConsolidation=true", want: true},
		"environment":          {env: "NodeRepair=true,ReservedCapacity=true,NodeOverlay=false", want: true},
		"the flag counts more": {env: "NodeRepair=true", flag: "NodeRepair=false"},
		"unknown":              {env: "NodeRepairs=true", wantErr: "FEATURE_GATES"},
	} {
		t.Run(name, func(t *testing.T) {
			off()
			t.Setenv("FEATURE_GATES", tc.env)
			cmd := newCommand()
			cmd.SetArgs([]string{})
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			if tc.wantErr != "" {
				if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("error = %v, want one naming %s", err, tc.wantErr)
				}
				return
			}
			if tc.flag != "" {
				if err := cmd.Flags().Set("feature-gates", tc.flag); err != nil {
					t.Fatal(err)
				}
			}
			if err := cmd.PersistentPreRunE(cmd, nil); err != nil {
				t.Fatal(err)
			}
			if got := utilfeature.DefaultFeatureGate.Enabled(nodeRepair); got != tc.want {
				t.Errorf("NodeRepair is %v, want %v", got, tc.want)
			}
		})
	}
}

func TestHelpShowsBothKindsOfFlags(t *testing.T) {
	cmd := newCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--cluster-name", "[CLUSTER_NAME]", "--leader-elect", "--feature-gates"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help does not show %q", want)
		}
	}
}

func TestCommandWithoutClusterName(t *testing.T) {
	t.Setenv("CLUSTER_NAME", "")
	cmd := newCommand()
	cmd.SetArgs([]string{})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "--cluster-name") {
		t.Errorf("error = %v, want one naming --cluster-name", err)
	}
}

func TestSinkRefusesUntilThereIsAProvisioner(t *testing.T) {
	if parked, node := new(lateSink).Offer(&corev1.Pod{}, nil); parked || node != "" {
		t.Errorf("Offer() = %v, %q, want the pod left to the scheduler", parked, node)
	}
}
