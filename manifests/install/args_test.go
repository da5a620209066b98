// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/slipway-sh/slipway/manifests/install"
)

// Whether EC2 lets Slipway launch is asked by the process whose role launches: the scheduler where it has one of its own, the
// controller where both share one.
func TestDryRunsAreMadeByTheRoleThatLaunches(t *testing.T) {
	for name, tc := range map[string]struct {
		manifest              []byte
		scheduler, controller bool
	}{
		"joint": {install.Joint, false, false},
		"split": {install.Split, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			args := map[string][]string{}
			documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(tc.manifest), 4096)
			for {
				var d appsv1.Deployment
				err := documents.Decode(&d)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if d.Kind != "Deployment" {
					continue
				}
				for _, c := range d.Spec.Template.Spec.Containers {
					args[c.Name] = c.Args
				}
			}
			if len(args["scheduler"]) == 0 || len(args["controller"]) == 0 {
				t.Fatalf("containers %v, want scheduler and controller", args)
			}
			if got := slices.Contains(args["scheduler"], "--dry-run"); got != tc.scheduler {
				t.Errorf("scheduler asks EC2 for the controller: %v, want %v", got, tc.scheduler)
			}
			if got := slices.Contains(args["controller"], "--dry-run-by-scheduler"); got != tc.controller {
				t.Errorf("controller leaves it to the scheduler: %v, want %v", got, tc.controller)
			}
			if slices.Contains(args["controller"], "--disable-dry-run") {
				t.Error("nobody asks EC2")
			}
		})
	}
}
