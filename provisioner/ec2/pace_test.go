// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestLaunchesNeverWaitForOtherCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(1)
		ctx, stop := context.WithCancel(t.Context())
		for range 500 { // templates being made ahead and refreshes, without end
			go func() { _ = p.wait(ctx, "CreateLaunchTemplate") }()
			go func() { _ = p.wait(ctx, "DescribeSpotPriceHistory") }()
		}
		synctest.Wait()
		began := time.Now()
		for range 20 {
			if err := p.wait(ctx, "CreateFleet"); err != nil {
				t.Fatal(err)
			}
		}
		for range 40 {
			if err := p.wait(Urgent(ctx), "DescribeInstances"); err != nil {
				t.Fatal(err)
			}
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("launches waited %s behind other calls", waited)
		}
		stop()
		synctest.Wait()
	})
}

func TestPaceKeepsToTheBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(1)
		began := time.Now()
		for range 60 { // 50 at once, then 5 a second
			if err := p.wait(t.Context(), "CreateFleet"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 2*time.Second || took > 2100*time.Millisecond {
			t.Errorf("60 calls took %s, want 2s", took)
		}
		p.throttled("CreateFleet")
		began = time.Now()
		if err := p.wait(t.Context(), "CreateFleet"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 200*time.Millisecond || took > 210*time.Millisecond {
			t.Errorf("after a throttled call the next waited %s, want 200ms", took)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		p.throttled("CreateFleet")
		if err := p.wait(ctx, "CreateFleet"); err == nil {
			t.Error("a call whose context has ended was let through")
		}
	})
}

func TestPacedProcessesShareTheBuckets(t *testing.T) {
	a, b := newPacer(0.7), newPacer(0.3)
	n := 0
	for _, p := range []*pacer{a, b} {
		for p.take("DescribeInstances", true) == 0 {
			n++
		}
	}
	if n < 98 || n > 104 {
		t.Errorf("two processes send %d calls at once, the account has 100", n)
	}
}
