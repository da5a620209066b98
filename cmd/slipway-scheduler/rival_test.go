// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestRival follows the answers of the planner and the launcher through an API server that fails at first, Karpenter's
// lease, and its end.
func TestRival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = "karpenter-leader-election"
		holder := "karpenter-1_x"
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "karpenter", Name: name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NowMicro())},
		}
		fails := true
		named := func(o client.Object) []string { return []string{o.GetName()} }
		kube := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(lease).WithIndex(&coordinationv1.Lease{}, metav1.ObjectNameField, named).
			WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if fails {
					return errors.New("connection refused")
				}
				return c.List(ctx, list, opts...)
			}}).Build()
		ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
		defer cancel()
		r := newRival(kube, name)
		said := r.last()
		started := make(chan bool, 1)
		go func() { started <- r.await(ctx) }()
		expect := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := said(); got != want {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
			if got, err := r.Holder(ctx); got != want || err != nil {
				t.Errorf("%s: disruption is told %q, error %v, want %q", when, got, err, want)
			}
		}
		expect("before an answer", unasked)
		if len(started) > 0 {
			t.Error("did not wait for the first answer")
		}
		fails = false
		time.Sleep(time.Second)
		const held = "lease karpenter/karpenter-leader-election is held by karpenter-1_x"
		expect("beside Karpenter", held)
		if len(started) != 1 || !<-started {
			t.Error("did not go on after the first answer")
		}
		fails = true
		time.Sleep(2 * rivalEvery)
		expect("while the API server is away", held)
		fails = false
		time.Sleep(16*time.Second + rivalEvery)
		expect("when the lease is not renewed any more", "")
	})
}

func TestNoRival(t *testing.T) {
	r := newRival(nil, "")
	if r.last() != nil {
		t.Error("somebody may be a rival without a lease to look at")
	}
	if !r.await(t.Context()) {
		t.Error("waited for nobody")
	}
}
