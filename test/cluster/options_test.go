// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"
	"time"
)

func TestOptionsAreChecked(t *testing.T) {
	tests := map[string]struct {
		options Options
		want    string // part of the error; empty: none
	}{
		"zero":           {},
		"negative rate":  {Options{ControllerQPS: -1}, "ControllerQPS"},
		"negative grace": {Options{NodeMonitorGracePeriod: -time.Second}, "NodeMonitorGracePeriod"},
		"no such kind":   {Options{Kubelet: 7}, "Kubelet"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := tc.options.validate()
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestControllerManagerFlags(t *testing.T) {
	args := strings.Join(controllerManagerArgs(ports{}, pkiFiles{}, "", Options{
		ControllerQPS: 20, NodeMonitorGracePeriod: 2 * time.Second, ControllerManagerArgs: []string{"--last"},
	}), " ")
	for _, want := range []string{"--kube-api-qps=20 ", "--kube-api-burst=30 ", "--node-monitor-grace-period=2s ", "--node-monitor-period=400ms "} {
		if !strings.Contains(args, want) {
			t.Errorf("flags lack %q: %s", want, args)
		}
	}
	if !strings.HasSuffix(args, " --last") {
		t.Errorf("the caller's flags are not last: %s", args)
	}
}
