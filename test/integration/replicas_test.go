// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// onePerNode is a pool whose nodes hold one pod of 1500m each.
const onePerNode = "- {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}"

// TestStandbyTakesOver kills the leader while nodes boot. The standby goes on within the lease's time, and neither loses nor
// repeats a launch.
func TestStandbyTakesOver(t *testing.T) {
	const pods, lease = 8, 4 * time.Second
	r := startWith(t, bed.Options{Emulator: ec2emu.Options{Seed: 20, BootScale: 0.2}, LeaseDuration: lease})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("small", 0, onePerNode)
	r.pod("warm", "1500m")
	r.running("warm", 1)
	if err := r.StartStandby(); err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		r.pod(fmt.Sprintf("first-%d", i), "1500m")
	}
	r.within(30*time.Second, "some of the instances", func(context.Context) (bool, error) { return len(r.alive()) > pods/2, nil })
	r.kill(bed.Scheduler)
	killed := time.Now()
	for i := range pods {
		r.pod(fmt.Sprintf("second-%d", i), "1500m")
	}
	r.running("first-", pods)
	r.running("second-", pods)
	r.settled(1 + 2*pods)
	for _, p := range r.watch.Pods("second-") {
		// The lease may have been renewed just before, and the standby looks for it every seventh of its duration.
		if took := p.Requested.Sub(killed); took > 2*lease+2*time.Second {
			t.Errorf("the standby asked for the node of %s %v after the leader's death, with a lease of %v", p.Pod.Name, took, lease)
		}
	}
	if got := len(r.Emulator.Instances()); got != 1+2*pods {
		t.Errorf("%d instances were launched for %d pods of one a node", got, 1+2*pods)
	}
	if _, second := r.watch.Claims(); second != 0 {
		t.Errorf("a second node was bought for %d pods", second)
	}
}

// TestTermination asks the scheduler to end while EC2 works on a launch: it ends when the claim has its instance.
func TestTermination(t *testing.T) {
	r := start(t, ec2emu.Options{Seed: 21, BootScale: 0.2})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("one", 0)
	var told atomic.Bool
	r.Emulator.SetHook(func(q ec2emu.Request) ec2emu.HookAction {
		if q.Action == "CreateFleet" && len(q.Instances) > 0 && told.CompareAndSwap(false, true) {
			if err := r.Process(bed.Scheduler).Terminate(); err != nil {
				t.Error(err)
			}
			time.Sleep(500 * time.Millisecond) // EC2 is slow
		}
		return ec2emu.Answer
	})
	r.pod("patient", "1500m")
	select {
	case <-r.Process(bed.Scheduler).Done():
	case <-time.After(30 * time.Second):
		t.Fatal("the scheduler did not end")
	}
	if got := r.Process(bed.Scheduler).ExitCode(); got != 0 {
		t.Errorf("exit code %d, want 0: %v", got, r.Process(bed.Scheduler).Err())
	}
	if c := r.claims(); len(c) != 1 || c[0].Status.ProviderID == "" {
		t.Errorf("claims %+v: want one, with the instance that EC2 answered with", c)
	}
	if err := r.StartScheduler(); err != nil {
		t.Fatal(err)
	}
	r.running("patient", 1)
	r.settled(1)
	if got := len(r.Emulator.Instances()); got != 1 {
		t.Errorf("%d instances were launched, want 1", got)
	}
}

// TestAPIServerAway takes the API server away while nodes boot and while pods wait to be planned. Afterwards no pod is
// forgotten and none is bought for twice.
func TestAPIServerAway(t *testing.T) {
	const pods = 8
	r := start(t, ec2emu.Options{Seed: 22, BootScale: 0.2})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("small", 0, onePerNode)
	r.pod("warm", "1500m")
	r.running("warm", 1)
	for i := range pods {
		r.pod(fmt.Sprintf("before-%d", i), "1500m")
	}
	r.refused = true // by an API server that has just started and has not read its rules yet
	// In the middle of it: some claims have their instance, others may not be written yet.
	r.within(30*time.Second, "an instance for one of the pods", func(context.Context) (bool, error) { return len(r.alive()) > 1, nil })
	if err := r.Cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(6 * time.Second) // the outage
	if err := r.Cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		r.pod(fmt.Sprintf("after-%d", i), "1500m")
	}
	r.running("before-", pods)
	r.running("after-", pods)
	r.settled(1 + 2*pods)
	if got := len(r.Emulator.Instances()); got != 1+2*pods {
		t.Errorf("%d instances were launched for %d pods of one a node", got, 1+2*pods)
	}
	if got := r.counter("slipway_provisioner_forgotten_total"); got != 0 {
		t.Errorf("%v pods had been forgotten", got)
	}
}

// counter is the sum over all labels of one of the scheduler's counters; 0 if it has never been counted.
func (r *rig) counter(name string) float64 {
	r.t.Helper()
	n, err := r.Count(r.t.Context(), bed.Scheduler, name)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}
