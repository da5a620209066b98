// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// TestSchedulerKilled kills slipway-scheduler at points of a launch. The next one finishes it: one instance, one claim, a
// running pod.
func TestSchedulerKilled(t *testing.T) {
	for name, when := range map[string]func(q ec2emu.Request, after bool) bool{
		"EC2 has launched and not answered": func(q ec2emu.Request, _ bool) bool { return q.Action == "CreateFleet" && len(q.Instances) > 0 },
		"the instance is being described":   func(q ec2emu.Request, after bool) bool { return after && q.Action == "DescribeInstances" },
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, ec2emu.Options{Seed: 5})
			r.applySample("general/ec2nodeclass.yaml")
			r.pool("one", 0)
			var launched, killed atomic.Bool
			r.Emulator.SetHook(func(q ec2emu.Request) ec2emu.HookAction {
				fleet := q.Action == "CreateFleet" && len(q.Instances) > 0
				if when(q, launched.Load()) && killed.CompareAndSwap(false, true) {
					if err := r.Process(bed.Scheduler).Kill(); err != nil {
						t.Error(err)
					}
					return ec2emu.Cut
				}
				if fleet {
					launched.Store(true)
				}
				return ec2emu.Answer
			})
			r.pod("survivor", "1500m")
			r.within(30*time.Second, "the scheduler to be killed", func(context.Context) (bool, error) { return killed.Load(), nil })
			if err := r.StartScheduler(); err != nil {
				t.Fatal(err)
			}
			r.running("survivor", 1)
			r.settled(1)
		})
	}
}

// TestSchedulerKilledBeforeTheCall kills slipway-scheduler when the claim is written and EC2 does not answer yet.
func TestSchedulerKilledBeforeTheCall(t *testing.T) {
	r := start(t, ec2emu.Options{Seed: 6})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("one", 0)
	r.Emulator.Inject(ec2emu.Fault{Action: "CreateFleet", Code: "InternalError", Status: 500, Count: 1000})
	r.pod("survivor", "1500m")
	r.within(30*time.Second, "a claim", func(context.Context) (bool, error) { return len(r.claims()) == 1, nil })
	r.kill(bed.Scheduler)
	r.Emulator.ClearFaults()
	if err := r.StartScheduler(); err != nil {
		t.Fatal(err)
	}
	r.running("survivor", 1)
	r.settled(1)
}

// TestSchedulerKilledWhileBooting kills slipway-scheduler when the machine boots; the next one lets the pod go.
func TestSchedulerKilledWhileBooting(t *testing.T) {
	r := start(t, ec2emu.Options{Seed: 7, BootScale: 0.2})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("one", 0)
	r.pod("survivor", "1500m")
	r.within(30*time.Second, "an instance", func(context.Context) (bool, error) { return len(r.alive()) == 1, nil })
	r.kill(bed.Scheduler)
	if err := r.StartScheduler(); err != nil {
		t.Fatal(err)
	}
	r.running("survivor", 1)
	r.settled(1)
}

// TestControllerAway shows that pods get their instance while slipway-controller is down, and their node once it is back.
func TestControllerAway(t *testing.T) {
	r := start(t, ec2emu.Options{Seed: 8})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("one", 0)
	r.kill(bed.Controller)
	r.pod("patient", "1500m")
	r.within(30*time.Second, "an instance without the controller", func(context.Context) (bool, error) { return len(r.alive()) == 1, nil })
	if err := r.StartController(); err != nil {
		t.Fatal(err)
	}
	r.running("patient", 1)
	r.settled(1)
}

// TestClaimDeletedOnTheWay deletes a claim while its machine boots: its pod gets exactly one more.
func TestClaimDeletedOnTheWay(t *testing.T) {
	r := start(t, ec2emu.Options{Seed: 9, BootScale: 0.2})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("one", 0)
	r.pod("unlucky", "1500m")
	r.within(30*time.Second, "an instance", func(context.Context) (bool, error) { return len(r.alive()) == 1, nil })
	c := r.claims()[0]
	if err := r.kube.Delete(t.Context(), &c); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	r.running("unlucky", 1)
	r.settled(1)
	if got := len(r.Emulator.Instances()); got != 2 {
		t.Errorf("%d instances were launched in all, want 2", got)
	}
}

// settled checks that claims and live instances are n, and stay so.
func (r *rig) settled(n int) {
	r.t.Helper()
	r.within(60*time.Second, "as many claims and instances as needed", func(context.Context) (bool, error) {
		return len(r.claims()) == n && len(r.alive()) == n, nil
	})
	deadline := time.Now().Add(2 * time.Second)
	for time.Now().Before(deadline) {
		if c, i := len(r.claims()), len(r.alive()); c != n || i != n {
			r.t.Fatalf("%d claims and %d live instances, want %d of each", c, i, n)
		}
		time.Sleep(100 * time.Millisecond) // watching a process outside this one: nothing tells when nothing happens
	}
}
