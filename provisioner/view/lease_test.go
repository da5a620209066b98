// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
)

const leaseName = "karpenter-leader-election"

func lease(namespace, name, holder string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(renewed))},
	}
}

func TestLeaseHolder(t *testing.T) {
	start := builder.Epoch()
	for name, tc := range map[string]struct {
		leases []client.Object
		// want after the first look, and after another minute without a renewal.
		want, later string
	}{
		"none":                 {},
		"another lease":        {leases: []client.Object{lease("kube-system", "other", "karpenter-1_x", start)}},
		"released":             {leases: []client.Object{lease("kube-system", leaseName, "", start)}},
		"Slipway's controller": {leases: []client.Object{lease("kube-system", leaseName, "slipway_slipway-controller-1_x", start)}},
		"Karpenter":            {leases: []client.Object{lease("kube-system", leaseName, "karpenter-1_x", start)}, want: "lease kube-system/karpenter-leader-election is held by karpenter-1_x"},
		"Karpenter, elsewhere": {
			leases: []client.Object{lease("slipway-system", leaseName, "slipway_1_x", start), lease("karpenter", leaseName, "karpenter-1_x", start)},
			want:   "lease karpenter/karpenter-leader-election is held by karpenter-1_x",
		},
		"a holder with a slow clock": {leases: []client.Object{lease("karpenter", leaseName, "karpenter-1_x", start.Add(-time.Hour))}, want: "lease karpenter/karpenter-leader-election is held by karpenter-1_x"},
	} {
		t.Run(name, func(t *testing.T) {
			named := func(o client.Object) []string { return []string{o.GetName()} }
			kube := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(tc.leases...).WithIndex(&coordinationv1.Lease{}, metav1.ObjectNameField, named).Build()
			clock := clocktesting.NewFakeClock(start)
			l := &view.Lease{Live: kube, Name: leaseName, Clock: clock}
			if got, err := l.Holder(t.Context()); err != nil || got != tc.want {
				t.Errorf("holder %q, error %v, want %q", got, err, tc.want)
			}
			clock.Step(14 * time.Second)
			if got, err := l.Holder(t.Context()); err != nil || got != tc.want {
				t.Errorf("holder %q, error %v while the lease lasts, want %q", got, err, tc.want)
			}
			clock.Step(time.Second)
			if got, err := l.Holder(t.Context()); err != nil || got != tc.later {
				t.Errorf("holder %q, error %v when the lease has run out, want %q", got, err, tc.later)
			}
			for _, o := range tc.leases { // renewed
				x, ok := o.(*coordinationv1.Lease)
				if !ok || tc.want == "" {
					continue
				}
				fresh := &coordinationv1.Lease{}
				if err := kube.Get(t.Context(), client.ObjectKeyFromObject(x), fresh); err != nil {
					t.Fatal(err)
				}
				fresh.Spec.RenewTime = new(metav1.NewMicroTime(x.Spec.RenewTime.Add(time.Second)))
				if err := kube.Update(t.Context(), fresh); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := l.Holder(t.Context()); err != nil || got != tc.want {
				t.Errorf("holder %q, error %v when the lease was renewed, want %q", got, err, tc.want)
			}
		})
	}
}
