// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// ended waits until the scheduler has given up and returns what it wrote.
func (r *rig) ended(within time.Duration) string {
	r.t.Helper()
	p := r.Process(bed.Scheduler)
	select {
	case <-p.Done():
	case <-time.After(within):
		r.t.Fatal("the scheduler runs, although it cannot work")
	}
	if p.ExitCode() == 0 {
		r.t.Error("exit code 0 after a start that failed")
	}
	log, err := p.Log()
	if err != nil {
		r.t.Fatal(err)
	}
	defer log.Close()
	raw, err := io.ReadAll(log)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(raw)
}

// TestBadConfiguration checks that a process that was told nonsense ends at once with one error that names it.
func TestBadConfiguration(t *testing.T) {
	for name, tc := range map[string]struct {
		opts bed.Options
		want []string
	}{
		"an unknown argument":    {bed.Options{PluginArgs: map[string]any{"lookahed": 1}}, []string{"unknown field", "lookahed", "reading profile"}},
		"a value out of range":   {bed.Options{PluginArgs: map[string]any{"gateDeadline": "1ms"}}, []string{"gateDeadline", "at least 1s"}},
		"an unknown gate":        {bed.Options{SchedulerArgs: []string{"--feature-gates=Nonsense=true"}}, []string{"Nonsense"}},
		"a flag without a value": {bed.Options{SchedulerArgs: []string{"--startup-timeout=-1s"}}, []string{"--startup-timeout"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := prepare(t, tc.opts)
			if err := r.StartScheduler(); err != nil {
				t.Fatal(err)
			}
			log := r.ended(20 * time.Second)
			for _, want := range tc.want {
				if !strings.Contains(log, want) {
					t.Errorf("what it wrote does not say %q:\n%s", want, log)
				}
			}
		})
	}
}

// TestMissingAtStart checks that kinds and rights that are missing are named, all at once, and that a process that waits for
// them goes on when they come.
func TestMissingAtStart(t *testing.T) {
	r := prepare(t, bed.Options{NoLeases: true, Emulator: ec2emu.Options{Seed: 23}, SchedulerArgs: []string{"--startup-timeout=3s"}})
	r.refused = true
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("ec2nodeclasses.karpenter.k8s.aws")
	binding := &rbacv1.ClusterRoleBinding{}
	if err := r.kube.Get(t.Context(), types.NamespacedName{Name: bed.Scheduler}, binding); err != nil {
		t.Fatal(err)
	}
	for _, obj := range []client.Object{crd, binding.DeepCopy()} {
		if err := r.kube.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	r.within(20*time.Second, "the kind to be gone", func(context.Context) (bool, error) {
		_, err := r.Client.Discovery().ServerResourcesForGroupVersion("karpenter.k8s.aws/v1")
		return err != nil, nil
	})
	if err := r.StartScheduler(); err != nil {
		t.Fatal(err)
	}
	log := r.ended(20 * time.Second)
	for _, want := range []string{"cannot start", "does not serve EC2NodeClass of karpenter.k8s.aws/v1", "create nodeclaims.karpenter.sh", "bind the roles"} {
		if !strings.Contains(log, want) {
			t.Errorf("what it wrote does not say %q:\n%s", want, log)
		}
	}
	// Again, with time for what is missing to come.
	r.Options().SchedulerArgs = []string{"--startup-timeout=60s"}
	if err := r.StartSlipway(); err != nil {
		t.Fatal(err)
	}
	r.pod("early", "1500m")
	if err := r.Cluster.ApplyCRDs(t.Context()); err != nil {
		t.Fatal(err)
	}
	binding.ResourceVersion, binding.UID = "", ""
	if err := r.kube.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("one", 0)
	r.running("early", 1)
	r.settled(1)
}
