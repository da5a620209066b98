// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// shortage is how launches behave when EC2 is out of most of what they ask for.
type shortage struct {
	next    []time.Duration // capacity error received → next request sent
	calls   int             // CreateFleet calls
	fewer   int             // the fewest that would have done
	given   int             // claims given up although there was capacity
	planned int             // claims of plans, which could have been given up
}

// dry makes the account sell 5 % of its offerings only, drawn from a seed.
func (w *world) dry() {
	draw := rand.New(rand.NewPCG(7, 95))
	for _, o := range w.catalogs.For(w.class).Offerings {
		if draw.Float64() < 0.95 {
			w.emu.SetStock(ec2emu.Pool{InstanceType: o.Type.Name, Zone: o.Zone, CapacityType: o.CapacityType}, 0)
		}
	}
}

// dryWorld is a world that is nearly out of stock, with a launcher whose templates are made. The caller closes its emulator.
func dryWorld(ctx context.Context) (*world, *rig, error) {
	w, err := newWorld(ctx, ec2emu.Options{})
	if err != nil {
		return nil, nil, err
	}
	w.dry()
	r := w.launcher(builder.NodePool("bench").Obj())
	if err := w.makeTemplates(ctx, r); err != nil {
		w.emu.Close()
		return nil, nil, err
	}
	return w, r, nil
}

// iceNext launches claims one by one, each from a launcher that knows of no shortage yet, for types of which a few at most
// are to be had: most of the first requests are answered with capacity errors.
func (s *shortage) iceNext(ctx context.Context) error {
	w, first, err := dryWorld(ctx)
	if err != nil {
		return err
	}
	defer w.emu.Close()
	w.wire.take()
	families := [][]string{{"c5", "c6i"}, {"m5", "m6i"}, {"r5", "r6i"}, {"c6a", "m6a"}, {"c7i", "m7i"}}
	for n := range 200 {
		r := w.launcher(builder.NodePool("bench").Obj())
		r.Templates = first.templates
		c, err := r.claim(ctx, fmt.Sprintf("ice-%d", n), "bench", ask{cpu: 1 + n%8, reqs: requirements{
			in("karpenter.k8s.aws/instance-family", families[n%len(families)]...),
		}})
		if err != nil {
			return err
		}
		r.Launch(logr.NewContext(ctx, logr.Discard()), []*karpv1.NodeClaim{c})
		if _, err := r.await(ctx, 1); err != nil {
			return err
		}
		calls := w.wire.take()
		for i := 1; i < len(calls); i++ {
			s.next = append(s.next, calls[i].sent.Sub(calls[i-1].answered))
		}
	}
	if len(s.next) < 50 {
		return fmt.Errorf("only %d requests followed a capacity error", len(s.next))
	}
	return nil
}

// iceCalls launches 40 groups of five claims at once from one launcher, of the widths plans have, with 95 % of the offerings
// dry. Each group needs one call at least.
func (s *shortage) iceCalls(ctx context.Context) error {
	w, err := newWorld(ctx, ec2emu.Options{Throttle: true})
	if err != nil {
		return err
	}
	defer w.emu.Close()
	w.dry()
	r := w.launcher(builder.NodePool("bench").Obj())
	if err := w.makeTemplates(ctx, r); err != nil {
		return err
	}
	var claims []*karpv1.NodeClaim
	categories := [][]string{{"c"}, {"m"}, {"r"}, {"c", "m", "r"}}
	const groups, each = 40, 5
	for g := range groups {
		for n := range each {
			c, err := r.claim(ctx, fmt.Sprintf("dry-%d-%d", g, n), "bench", ask{group: fmt.Sprintf("dry-%d", g), cpu: 1 + g/4, reqs: requirements{
				in("karpenter.k8s.aws/instance-category", categories[g%len(categories)]...),
			}})
			if err != nil {
				return err
			}
			claims = append(claims, c)
		}
	}
	before := len(w.emu.Requests())
	r.Launch(logr.NewContext(ctx, logr.Discard()), claims)
	out, err := r.await(ctx, len(claims))
	if err != nil {
		return err
	}
	for _, o := range out {
		if o.Err != nil {
			fmt.Printf("claim %q was given up: %v\n", o.Claim.Name, o.Err)
			s.given++
		}
	}
	s.calls, s.fewer = count(w.since(before), "CreateFleet"), groups
	return nil
}

// replanned plans pods on a pool of which 95 % of the offerings are dry, as the provisioner does, and launches the plans'
// claims, which allow what their plan did and no more. Claims that are given up would be deleted and made again.
func (s *shortage) replanned(ctx context.Context) error {
	w, r, err := dryWorld(ctx)
	if err != nil {
		return err
	}
	defer w.emu.Close()
	catalog := w.catalogs.For(w.class)
	for round := range 40 {
		pool := builder.CapacityPool("bench", catalog).Require(capacity.In("karpenter.k8s.aws/instance-category", "c", "m", "r")).Obj()
		pool.Available = r.shortages.Available(catalog)
		pods := builder.PodsOf(builder.Class(fmt.Sprintf("class-%d", round)).CPU(fmt.Sprint(1+round%10)).Memory(fmt.Sprintf("%dGi", 2+3*(round%7))).Obj(), 8)
		result := plan.Solve(plan.Input{View: &capacity.View{Pools: []*capacity.Pool{pool}}, Pods: pods})
		var claims []*karpv1.NodeClaim
		for i, l := range result.Launches {
			var reqs requirements
			for _, key := range l.Requirements.Keys() {
				for _, q := range l.Requirements[key].Selectors() {
					reqs = append(reqs, karpv1.NodeSelectorRequirementWithMinValues{Key: q.Key, Operator: q.Operator, Values: q.Values})
				}
			}
			c, err := r.claim(ctx, fmt.Sprintf("planned-%d-%d", round, i), "bench", ask{cpu: 1, reqs: reqs})
			if err != nil {
				return err
			}
			c.Spec.Resources.Requests = l.Requests.List()
			claims = append(claims, c)
		}
		r.Launch(logr.NewContext(ctx, logr.Discard()), claims)
		out, err := r.await(ctx, len(claims))
		if err != nil {
			return err
		}
		s.planned += len(out)
		for _, o := range out {
			if o.Err != nil {
				s.given++
			}
		}
	}
	return nil
}
