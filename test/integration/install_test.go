// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/manifests/install"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// TestInstalled applies each rendered installation whole, runs its processes with the arguments, configuration and
// identity it gives them, leases included, and sees a pod run. Then everything Slipway installed is deleted, and pods can
// still be created.
func TestInstalled(t *testing.T) {
	for name, manifests := range map[string][]byte{"joint": install.Joint, "split": install.Split} {
		t.Run(name, func(t *testing.T) {
			r := startAs(t, bed.Options{Installation: manifests, Emulator: ec2emu.Options{Seed: 1}})
			began := time.Now()
			r.apply(string(manifests))
			r.applySample("general/ec2nodeclass.yaml")
			r.pool("one", 0)
			r.pod("first", "500m")
			r.running("first", 1)
			t.Logf("from applying to the first pod on a bought node: %.1f s", time.Since(began).Seconds())

			r.uninstall()
			r.pod("after", "500m")
		})
	}
}

// uninstall ends the processes and deletes what the installation has in Slipway's namespace, as deleting the release does.
func (r *rig) uninstall() {
	r.t.Helper()
	for _, name := range []string{bed.Scheduler, bed.Controller} {
		if err := r.Process(name).Kill(); err != nil {
			r.t.Fatal(err)
		}
	}
	kinds := []client.Object{
		&appsv1.Deployment{}, &corev1.ConfigMap{}, &corev1.ServiceAccount{}, &policyv1.PodDisruptionBudget{}, &networkingv1.NetworkPolicy{},
	}
	for _, kind := range kinds {
		if err := r.kube.DeleteAllOf(r.t.Context(), kind, client.InNamespace(bed.Namespace)); err != nil {
			r.t.Fatal(err)
		}
	}
}
