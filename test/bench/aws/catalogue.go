// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// catalogue is what the catalogue of 1,370 types costs.
type catalogue struct {
	types             int
	megabytes         float64
	quiet, refreshing []time.Duration // Launch → the launcher asks the cloud for a fleet
}

// instantFleet answers at once: what is measured ends at the request.
type instantFleet struct {
	*ec2.Client
	at chan time.Time
}

// Fleet implements launch.Cloud.
func (f instantFleet) Fleet(_ context.Context, req ec2.FleetRequest) (ec2.FleetResult, error) {
	f.at <- time.Now()
	o := req.Overrides[0]
	return ec2.FleetResult{Instances: []ec2.FleetInstance{{ID: "i-" + req.Token, InstanceType: o.InstanceType, Zone: o.Zone, CapacityType: req.CapacityType}}}, nil
}

// Describe implements launch.Cloud.
func (f instantFleet) Describe(_ context.Context, ids []string) ([]ec2.Instance, error) {
	out := make([]ec2.Instance, len(ids))
	for i, id := range ids {
		out[i] = ec2.Instance{ID: id, PrivateDNSName: id + ".ec2.internal", InstanceType: "m5.large", Zone: zones()[0], CapacityType: "spot"}
	}
	return out, nil
}

// measure launches claims, one at a time, first with nothing else going on and then while the catalogue is refreshed over
// and over.
func (c *catalogue) measure(ctx context.Context) error {
	before := heap()
	w, err := newWorld(ctx, ec2emu.Options{})
	if err != nil {
		return err
	}
	defer w.emu.Close()
	with := heap()
	c.types = len(w.catalogs.For(w.class).Types)
	// What the account's other half, the emulator, holds is not the product's: a second set of catalogues tells them apart.
	second, err := ec2.NewCatalogs(w.cloud)
	if err != nil {
		return err
	}
	if err := second.Refresh(ctx); err != nil {
		return err
	}
	if second.For(w.class) == nil {
		return fmt.Errorf("there is no catalogue for the class")
	}
	c.megabytes = float64(heap()-with) / (1 << 20)
	runtime.KeepAlive(second)
	if with < before {
		return fmt.Errorf("the heap shrank while the catalogue was built: measure again")
	}
	r := w.launcher(builder.NodePool("bench").Obj())
	if err := w.makeTemplates(ctx, r); err != nil {
		return err
	}
	fleet := instantFleet{w.cloud, make(chan time.Time, 1)}
	r.Cloud = fleet
	if c.quiet, err = c.launches(ctx, r, fleet, "quiet", 300); err != nil {
		return err
	}
	ended, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		for ended.Err() == nil {
			if err := w.catalogs.RefreshTypes(ended); err != nil && ended.Err() == nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	c.refreshing, err = c.launches(ctx, r, fleet, "refreshing", 300)
	stop()
	if e := <-done; err == nil {
		err = e
	}
	return err
}

func (c *catalogue) launches(ctx context.Context, r *rig, fleet instantFleet, name string, n int) ([]time.Duration, error) {
	ctx = logr.NewContext(ctx, logr.Discard())
	var out []time.Duration
	for i := range n {
		claim, err := r.claim(ctx, fmt.Sprintf("%s-%d", name, i), "bench", ask{cpu: 1})
		if err != nil {
			return nil, err
		}
		began := time.Now()
		r.Launch(ctx, []*karpv1.NodeClaim{claim})
		out = append(out, (<-fleet.at).Sub(began))
		if _, err := r.await(ctx, 1); err != nil {
			return nil, err
		}
		time.Sleep(3 * time.Millisecond) // spread over the phases of a refresh
	}
	return out, nil
}

// stall is how much longer a launch takes while the catalogue is refreshed: the difference of the 99th percentiles.
func (c *catalogue) stall() time.Duration {
	return max(bed.Quantile(c.refreshing, 0.99)-bed.Quantile(c.quiet, 0.99), 0)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
