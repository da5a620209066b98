// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
)

type durations struct{ Debounce, Max, Deadline time.Duration }

func TestDecodeArgs(t *testing.T) {
	defaults := durations{DefaultBatchDebounce, DefaultBatchMax, DefaultGateDeadline}
	for _, tc := range []struct {
		name    string
		raw     string
		want    durations
		wantErr string
	}{
		{name: "empty", want: defaults},
		{name: "empty object", raw: "{}", want: defaults},
		{
			name: "all set", raw: `{"apiVersion":"slipway.sh/v1alpha1","kind":"SlipwayArgs","batchDebounce":"0s","batchMax":"1s","gateDeadline":"1m"}`,
			want: durations{0, time.Second, time.Minute},
		},
		{name: "yaml", raw: "batchMax: 250ms\n", want: durations{DefaultBatchDebounce, 250 * time.Millisecond, DefaultGateDeadline}},
		{name: "unknown field", raw: `{"batchmaximum":"1s"}`, wantErr: "batchmaximum"},
		{name: "repeated field", raw: "batchMax: 1s\nbatchMax: 2s\n", wantErr: "batchMax"},
		{name: "other version", raw: `{"apiVersion":"slipway.sh/v2"}`, wantErr: "apiVersion"},
		{name: "other kind", raw: `{"kind":"FitArgs"}`, wantErr: "kind"},
		{name: "negative debounce", raw: `{"batchDebounce":"-1ms"}`, wantErr: "batchDebounce"},
		{name: "max below debounce", raw: `{"batchDebounce":"2s","batchMax":"1s"}`, wantErr: "batchMax"},
		{name: "deadline too short", raw: `{"gateDeadline":"10ms"}`, wantErr: "gateDeadline"},
		{name: "negative early launch", raw: `{"earlyLaunch":-1}`, wantErr: "earlyLaunch"},
		{name: "negative look-ahead", raw: `{"lookAhead":-1}`, wantErr: "lookAhead"},
		{name: "not a duration", raw: `{"batchMax":"soon"}`, wantErr: "soon"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := DecodeArgs(&runtime.Unknown{Raw: []byte(tc.raw)})
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("DecodeArgs() error = %v, want one naming %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatalf("DecodeArgs() error = %v", err)
			}
			if diff := cmp.Diff(tc.want, durations{got.BatchDebounce.Duration, got.BatchMax.Duration, got.GateDeadline.Duration}); diff != "" {
				t.Errorf("DecodeArgs() mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeArgsWithoutEntry(t *testing.T) {
	got, err := DecodeArgs(nil)
	if err != nil {
		t.Fatalf("DecodeArgs(nil) error = %v", err)
	}
	if got.BatchMax.Duration != DefaultBatchMax {
		t.Errorf("batchMax = %v, want the default %v", got.BatchMax.Duration, DefaultBatchMax)
	}
}

func TestArgsOf(t *testing.T) {
	ours := schedulerapi.PluginSet{Enabled: []schedulerapi.Plugin{{Name: Name}}}
	config := []schedulerapi.PluginConfig{{Name: Name, Args: &runtime.Unknown{Raw: []byte(`{"batchMax":"7s"}`)}}}
	for _, tc := range []struct {
		name        string
		profile     schedulerapi.KubeSchedulerProfile
		wantEnabled bool
		wantMax     time.Duration
	}{
		{name: "no plugins"},
		{name: "not enabled", profile: schedulerapi.KubeSchedulerProfile{Plugins: &schedulerapi.Plugins{}, PluginConfig: config}},
		{
			name: "multi point", profile: schedulerapi.KubeSchedulerProfile{Plugins: &schedulerapi.Plugins{MultiPoint: ours}, PluginConfig: config},
			wantEnabled: true, wantMax: 7 * time.Second,
		},
		{
			name: "post filter without args", profile: schedulerapi.KubeSchedulerProfile{Plugins: &schedulerapi.Plugins{PostFilter: ours}},
			wantEnabled: true, wantMax: DefaultBatchMax,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args, enabled, err := ArgsOf(tc.profile)
			if err != nil {
				t.Fatalf("ArgsOf() error = %v", err)
			}
			if enabled != tc.wantEnabled {
				t.Fatalf("ArgsOf() enabled = %v, want %v", enabled, tc.wantEnabled)
			}
			if enabled && args.BatchMax.Duration != tc.wantMax {
				t.Errorf("batchMax = %v, want %v", args.BatchMax.Duration, tc.wantMax)
			}
		})
	}
}
