// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption_test

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/test/builder"
)

func TestAdmissionLease(t *testing.T) {
	clock := clocktesting.NewFakeClock(builder.Epoch())
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "slipway-system", Name: v1alpha1.AdmissionLease}}
	kube := fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()
	admission := &disruption.AdmissionLease{Live: kube, Namespace: "slipway-system", Clock: clock}
	expect := func(what string, healthy bool) {
		t.Helper()
		if why := admission.Unhealthy(t.Context()); (why == "") != healthy {
			t.Errorf("%s: unhealthy because of %q, want healthy: %v", what, why, healthy)
		}
	}
	// renewed writes the lease with the time of a clock that is wrong by skew.
	renewed := func(skew time.Duration) {
		t.Helper()
		lease.Spec.RenewTime = &metav1.MicroTime{Time: clock.Now().Add(skew)}
		err := kube.Update(t.Context(), lease)
		if lease.ResourceVersion == "" {
			err = kube.Create(t.Context(), lease)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	expect("no lease", false)
	renewed(0)
	expect("just renewed", true)
	clock.Step(v1alpha1.AdmissionSilence + time.Second)
	expect("silent", false)
	renewed(-time.Hour)
	expect("renewed by a clock that is late", true)
	renewed(time.Hour)
	expect("renewed by a clock that is early", true)
	clock.Step(v1alpha1.AdmissionSilence + time.Second)
	expect("silent, whatever the early clock said", false)

	admission = &disruption.AdmissionLease{Live: kube, Namespace: "slipway-system", Clock: clock}
	lease.Spec.RenewTime = nil
	if err := kube.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	expect("never renewed", false)
	renewed(-time.Hour)
	expect("an old renewal, seen for the first time", false)
	clock.Step(10 * time.Second)
	renewed(-time.Hour)
	expect("renewed before this process's eyes", true)
}

// While admission is unhealthy only what nobody would miss goes: nodes without pods, and those whose time is over.
func TestSickAdmissionPausesDisruption(t *testing.T) {
	const why = "Admission does not work"
	drifting := func(t *testing.T) *rig {
		r := newRig(t, func(p *builder.NodePoolBuilder) { p.NodeLabel("team", "a").Require(builder.In("team", "a")) })
		r.node("a", "m5.large") // has no label team
		r.pod("w", "a", "500m")
		return r
	}
	t.Run("nothing begins", func(t *testing.T) {
		r := drifting(t)
		r.node("empty", "m5.large")
		r.Sick = why
		r.run(time.Minute)
		r.untouched("a")
		if !r.heard("node-a", "DisruptionBlocked", why) {
			t.Errorf("no event says why; there are %v", r.Said)
		}
		if c := r.claim("empty"); c != nil && c.DeletionTimestamp == nil {
			t.Error("the empty node stays; none of its pods would be created again")
		}
		r.Sick = ""
		r.run(5 * time.Minute)
		if r.claim("a") != nil {
			t.Error("a stays although admission is healthy again")
		}
	})
	t.Run("what was begun waits", func(t *testing.T) {
		r := drifting(t)
		r.pass()
		if !r.tainted("a") {
			t.Fatal("the replacement of a has not begun")
		}
		r.Sick = why
		r.run(5 * time.Minute)
		if r.leaving("a") || !r.tainted("a") {
			t.Errorf("leaving %v, tainted %v; want a to wait with its replacement", r.leaving("a"), r.tainted("a"))
		}
		r.run(20 * time.Minute)
		r.untouched("a")
	})
	t.Run("an expired node goes", func(t *testing.T) {
		r := drifting(t)
		r.Sick = why
		c := r.claim("a")
		c.Spec.ExpireAfter = karpv1.MustParseNillableDuration("1m")
		if err := r.Kube.Update(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		r.run(5 * time.Minute)
		if r.claim("a") != nil {
			t.Error("a stays beyond its time")
		}
		node := &corev1.Node{}
		if err := r.Kube.Get(t.Context(), client.ObjectKey{Name: "node-a"}, node); err == nil {
			t.Error("the node stays beyond its time")
		}
	})
}
