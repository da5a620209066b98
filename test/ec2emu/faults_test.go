// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	gocmp "github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestFaults(t *testing.T) {
	tests := []struct {
		name  string
		fault Fault
		codes []string // of three calls
	}{
		{"throttled once", Fault{Action: "DescribeSubnets", Code: "RequestLimitExceeded", Count: 1}, []string{"RequestLimitExceeded", "", ""}},
		{"unauthorized for good", Fault{Action: "*", Code: "UnauthorizedOperation"}, []string{"UnauthorizedOperation", "UnauthorizedOperation", "UnauthorizedOperation"}},
		{"internal error twice", Fault{Action: "DescribeSubnets", Code: "InternalError", Count: 2}, []string{"InternalError", "InternalError", ""}},
		{"another action", Fault{Action: "CreateFleet", Code: "InternalError"}, []string{"", "", ""}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := start(t, Options{})
			b.Inject(test.fault)
			for i, want := range test.codes {
				_, err := b.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
				if got := code(err); got != want {
					t.Errorf("call %d: got %q, want %q", i, got, want)
				}
			}
			b.ClearFaults()
			_, err := b.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
			wantCode(t, err, "")
		})
	}
}

// Only requests with the parameters of a fault are hit by it.
func TestFaultByParameters(t *testing.T) {
	b := fleetBed(t, Options{})
	b.Inject(Fault{Action: "CreateFleet", Parameters: map[string]string{"DryRun": "true"}, Code: "UnauthorizedOperation", Message: "You are not authorized to perform this operation."})
	launch := func(dryRun bool) error {
		in := fleet(1, onDemandType, "m5.large")
		in.DryRun = aws.Bool(dryRun)
		_, err := b.ec2.CreateFleet(t.Context(), in)
		return err
	}
	wantCode(t, launch(true), "UnauthorizedOperation")
	wantCode(t, launch(false), "")
	b.ClearFaults()
	wantCode(t, launch(true), "DryRunOperation")
}

func TestFaultRate(t *testing.T) {
	b := start(t, Options{Seed: 7})
	b.Inject(Fault{Action: "DescribeSubnets", Code: "InternalError", Rate: 0.3})
	const calls = 400
	failed := 0
	for range calls {
		if _, err := b.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{}); err != nil {
			failed++
		}
	}
	// Three standard deviations of a binomial draw.
	if failed < 92 || failed > 148 {
		t.Errorf("%d of %d calls failed, want about 120", failed, calls)
	}
}

// A stock client gets over throttling: the error is one it knows to retry.
func TestThrottlingIsRetried(t *testing.T) {
	b := start(t, Options{})
	b.Inject(Fault{Action: "DescribeSubnets", Code: "RequestLimitExceeded", Count: 2})
	cfg := b.AWSConfig()
	cfg.Retryer = func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) {
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
		})
	}
	if _, err := ec2.NewFromConfig(cfg).DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{}); err != nil {
		t.Fatal(err)
	}
	if got := len(b.Requests()); got != 3 {
		t.Errorf("%d requests, want 3", got)
	}
}

// Each kind of request has its burst at once and its refill a second later.
func TestTokenBuckets(t *testing.T) {
	zones := func(b *bed) error {
		_, err := b.ec2.DescribeAvailabilityZones(context.Background(), &ec2.DescribeAvailabilityZonesInput{})
		return err
	}
	instances := func(in ec2.DescribeInstancesInput) func(*bed) error {
		return func(b *bed) error {
			_, err := b.ec2.DescribeInstances(context.Background(), &in)
			return err
		}
	}
	run := func(b *bed) error {
		_, err := b.ec2.RunInstances(context.Background(), &ec2.RunInstancesInput{MinCount: aws.Int32(1), MaxCount: aws.Int32(300)})
		return err
	}
	tests := []struct {
		name          string
		rates         map[string]Rate
		call          func(*bed) error
		burst, refill int
	}{
		{"describe", PublishedRates(), zones, 100, 20},
		{"filtered", PublishedRates(), instances(ec2.DescribeInstancesInput{Filters: []ec2types.Filter{filter("instance-id", "i-1")}}), 100, 20},
		{"unfiltered", PublishedRates(), instances(ec2.DescribeInstancesInput{}), 50, 10},
		{"mutate", PublishedRates(), func(b *bed) error {
			_, err := b.ec2.DeleteLaunchTemplate(context.Background(), &ec2.DeleteLaunchTemplateInput{LaunchTemplateName: aws.String("none")})
			return err
		}, 50, 5},
		{"by instances", PublishedRates(), run, 3, 0},
		{"by requests", map[string]Rate{"RunInstances": {Refill: 2, Burst: 5}}, run, 5, 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
			b := start(t, Options{Clock: clock})
			b.SetRates(test.rates)
			accepted := func() int {
				n := 0
				for code(test.call(b)) != "RequestLimitExceeded" {
					n++
				}
				return n
			}
			first := accepted()
			clock.Step(time.Second)
			if second := accepted(); first != test.burst || second != test.refill {
				t.Errorf("%d requests at once and %d a second later, want %d and %d", first, second, test.burst, test.refill)
			}
			b.SetRates(nil)
			if err := test.call(b); code(err) == "RequestLimitExceeded" {
				t.Error("throttled without rates")
			}
		})
	}
}

func TestHookCutsAfterTheEffect(t *testing.T) {
	b := start(t, Options{InstantBoot: true})
	b.profile(t)
	b.template(t, nodeConfig)
	b.SetHook(func(r Request) HookAction {
		if r.Action == "CreateFleet" && len(r.Instances) == 1 {
			return Cut
		}
		return Answer
	})
	in := fleet(1, onDemandType, "m5.large")
	in.ClientToken = aws.String("claim-1")
	if _, err := b.ec2.CreateFleet(t.Context(), in); err == nil {
		t.Fatal("the answer arrived")
	}
	if got := len(b.Instances()); got != 1 {
		t.Fatalf("%d instances, want the one of the lost answer", got)
	}
	b.SetHook(nil)
	out := must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), in))
	if got := b.Instances(); len(got) != 1 || out.Instances[0].InstanceIds[0] != got[0].ID {
		t.Errorf("the token launched again: %d instances", len(got))
	}
}

func TestCrashAfter(t *testing.T) {
	b := start(t, Options{InstantBoot: true})
	b.profile(t)
	b.template(t, nodeConfig)
	crashed := 0
	b.SetHook(CrashAfter("CreateFleet", 2, func() { crashed = len(b.Instances()) }))
	for i, answered := range []bool{true, false, true} {
		if _, err := b.ec2.CreateFleet(t.Context(), fleet(1, onDemandType, "m5.large")); (err == nil) != answered {
			t.Errorf("fleet %d: %v", i, err)
		}
	}
	if crashed != 2 {
		t.Errorf("crashed with %d instances launched, want 2: after the effect", crashed)
	}
}

func TestTimeout(t *testing.T) {
	b := start(t, Options{})
	b.Inject(Fault{Action: "DescribeSubnets", Delay: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a time-out", err)
	}
}

func TestPartialFleets(t *testing.T) {
	b := fleetBed(t, Options{Seed: 3})
	b.SetPartialFleets(1)
	for _, want := range []int{2, 10} {
		out := must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), fleet(int32(want), onDemandType, "m5.large", "m5.xlarge")))
		got := 0
		for _, i := range out.Instances {
			got += len(i.InstanceIds)
		}
		if got < 1 || got >= want || len(out.Errors) == 0 || *out.Errors[0].ErrorCode != "InsufficientInstanceCapacity" {
			t.Errorf("%d of %d instances, errors %q; want fewer, and why", got, want, summary(out))
		}
	}
	// One instance is all or nothing, and with the control off so is every fleet.
	if got := summary(must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), fleet(1, onDemandType, "m5.large")))); len(got) != 1 {
		t.Errorf("one instance: %q", got)
	}
	b.SetPartialFleets(0)
	want := []string{"5 m5.large@us-east-1a on-demand"}
	if diff := gocmp.Diff(want, summary(must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), fleet(5, onDemandType, "m5.large"))))); diff != "" {
		t.Errorf("whole fleet (-want +got):\n%s", diff)
	}
}
