// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/provisioner/view"
)

// rivalEvery is how often it is asked who holds Karpenter's lease.
const rivalEvery = 5 * time.Second

// unasked is the answer before the first one.
const unasked = "who holds Karpenter's leader lease is not known yet"

// rival remembers who but Slipway holds Karpenter's leader lease, so that the API server is asked once for the planner, the
// launcher and disruption. A nil rival is nobody ever.
type rival struct {
	lease *view.Lease
	said  atomic.Pointer[string]
}

// newRival looks at leases of the name; nil if that is empty.
func newRival(live client.Reader, name string) *rival {
	if name == "" {
		return nil
	}
	return &rival{lease: &view.Lease{Live: live, Name: name, Clock: clock.RealClock{}}}
}

// Holder implements disruption.Rival with the last answer, which run keeps young.
func (r *rival) Holder(context.Context) (string, error) { return r.last()(), nil }

// ask asks the API server.
func (r *rival) ask(ctx context.Context) error {
	holder, err := r.lease.Holder(ctx)
	if err == nil {
		r.said.Store(&holder)
	}
	return err
}

// last is the last answer, as a function; nil if there never is a rival.
func (r *rival) last() func() string {
	if r == nil {
		return nil
	}
	return func() string {
		if said := r.said.Load(); said != nil {
			return *said
		}
		return unasked
	}
}

// run keeps the answer young. It returns when ctx ends; ready is closed after the first answer.
func (r *rival) run(ctx context.Context, ready chan<- struct{}) {
	for asked := false; ; {
		if err := r.ask(ctx); err == nil && !asked {
			asked = true
			close(ready)
		} else if err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "who owns the node classes of karpenter.k8s.aws is not known; the last answer counts")
		}
		wait := rivalEvery
		if !asked {
			wait = time.Second
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// await starts run and waits for the first answer. It returns false if ctx ends before.
func (r *rival) await(ctx context.Context) bool {
	if r == nil {
		return true
	}
	ready := make(chan struct{})
	go r.run(ctx, ready)
	select {
	case <-ready:
		return true
	case <-ctx.Done():
		return false
	}
}
