// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// cold launches one claim of a pool whose launch templates have never been made and counts the EC2 calls before its
// CreateFleet call. With templates made ahead, as pools have them a moment after they turn ready, there is none.
func cold(ctx context.Context) (withoutTemplates, madeAhead int, err error) {
	w, err := newWorld(ctx, ec2emu.Options{Throttle: true})
	if err != nil {
		return 0, 0, err
	}
	defer w.emu.Close()
	counts := [2]int{}
	for i, ahead := range []bool{false, true} {
		name := fmt.Sprintf("cold-%d", i)
		r := w.launcher(builder.NodePool(name).Obj())
		if ahead {
			if err := w.makeTemplates(ctx, r); err != nil {
				return 0, 0, err
			}
		}
		before := len(w.emu.Requests())
		c, err := r.claim(ctx, name, name, ask{cpu: 1})
		if err != nil {
			return 0, 0, err
		}
		r.Launch(ctx, []*karpv1.NodeClaim{c})
		out, err := r.await(ctx, 1)
		if err != nil {
			return 0, 0, err
		}
		if out[0].Err != nil {
			return 0, 0, out[0].Err
		}
		for _, q := range w.since(before) {
			if q.Action == "CreateFleet" {
				break
			}
			if q.Service == "ec2" {
				counts[i]++
			}
		}
	}
	return counts[0], counts[1], nil
}

func (w *world) eventually(ctx context.Context, what string, ok func([]ec2emu.Request) bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok(w.emu.Requests()) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

func count(all []ec2emu.Request, action string) int {
	n := 0
	for _, r := range all {
		if r.Action == action {
			n++
		}
	}
	return n
}

// answered counts the requests of an action that have been answered.
func answered(all []ec2emu.Request, action string) int {
	n := 0
	for _, r := range all {
		if r.Action == action && r.Status != 0 {
			n++
		}
	}
	return n
}

// thousand is what launching 1,000 claims takes.
type thousand struct {
	mutating, throttles int
	last                time.Duration
	tagging             int // calls for the tags of single instances, in the background
}

// launchThousand launches 1,000 claims of five shapes, 200 each, while another pool's templates are being made and the
// catalogue is refreshed, in an account that throttles as EC2 does. Each claim has to get its instance, its node's name and
// its price, each instance all tags of a launch from its first instant on.
func launchThousand(ctx context.Context) (t thousand, err error) {
	w, err := newWorld(ctx, ec2emu.Options{Throttle: true})
	if err != nil {
		return t, err
	}
	defer w.emu.Close()
	r := w.launcher(builder.NodePool("bench").Obj())
	if err := w.makeTemplates(ctx, r); err != nil {
		return t, err
	}
	var claims []*karpv1.NodeClaim
	for shape := range 5 {
		for i := range 200 {
			c, err := r.claim(ctx, fmt.Sprintf("shape-%d-%d", shape, i), "bench", ask{group: fmt.Sprintf("group-%d", shape), cpu: shape + 1})
			if err != nil {
				return t, err
			}
			claims = append(claims, c)
		}
	}
	before := len(w.emu.Requests())
	began := time.Now()
	refreshed := make(chan error, 1)
	go func() { refreshed <- w.catalogs.Refresh(ctx) }()
	r.Launch(logr.NewContext(ctx, logr.Discard()), claims)
	outcomes, err := r.await(ctx, len(claims))
	if err != nil {
		return t, err
	}
	for _, o := range outcomes {
		if o.Err != nil || o.NodeName == "" || o.Price <= 0 {
			return t, fmt.Errorf("claim %q ended with node %q, price %g, error %w", o.Claim.Name, o.NodeName, o.Price, o.Err)
		}
	}
	if err := <-refreshed; err != nil {
		return t, err
	}
	for _, q := range w.since(before) {
		if q.Code == "RequestLimitExceeded" {
			t.throttles++
		}
		if mutating(q) {
			t.mutating++
		}
		if q.Service == "ec2" && (mutating(q) || q.Action == "DescribeInstances") {
			t.last = max(t.last, q.At.Sub(began))
		}
	}
	t.tagging = len(claims)
	return t, w.tagged(ctx, len(claims))
}

// tagged checks that the account has n instances with every tag of a launch.
func (w *world) tagged(ctx context.Context, n int) error {
	found, err := w.cloud.ClusterInstances(ctx)
	if err != nil {
		return err
	}
	if len(found) != n {
		return fmt.Errorf("%d instances for %d claims", len(found), n)
	}
	for _, i := range found {
		for _, key := range []string{ec2.TagClusterPrefix + "demo", ec2.TagClusterName, ec2.TagNodePool, ec2.TagNodeClass, ec2.TagLaunch} {
			if i.Tags[key] == "" {
				return fmt.Errorf("instance %s lacks tag %q", i.ID, key)
			}
		}
	}
	return nil
}

// makeTemplates makes the templates of the launcher's pools, as its loop does ahead of need.
func (w *world) makeTemplates(ctx context.Context, r *rig) error {
	ended, stop := context.WithCancel(ctx)
	defer stop()
	before := answered(w.emu.Requests(), "CreateLaunchTemplate")
	go r.templates.Run(ended)
	return w.eventually(ctx, "launch templates", func(all []ec2emu.Request) bool {
		return answered(all, "CreateLaunchTemplate") >= before+2*len(w.class.Status.AMIs)
	})
}
