// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/test/ec2emu"
)

func TestShape(t *testing.T) {
	out := &ec2.DescribeInstancesOutput{Reservations: []ec2types.Reservation{{
		ReservationId: aws.String("r-0123456789abcdef0"),
		Instances: []ec2types.Instance{
			{InstanceId: aws.String("i-0123456789abcdef0"), EbsOptimized: aws.Bool(false), PublicDnsName: aws.String("")},
			{LaunchTime: aws.Time(time.Now()), AmiLaunchIndex: aws.Int32(1), State: &ec2types.InstanceState{Name: "running"}},
		},
	}}}
	want := shape{
		"Reservations[].ReservationId":              "r-id",
		"Reservations[].Instances[].InstanceId":     "i-id",
		"Reservations[].Instances[].EbsOptimized":   "bool",
		"Reservations[].Instances[].LaunchTime":     "time",
		"Reservations[].Instances[].AmiLaunchIndex": "number",
		"Reservations[].Instances[].State.Name":     "text",
	}
	if diff := cmp.Diff(want, shapeOf(out)); diff != "" {
		t.Errorf("shape (-want +got):\n%s", diff)
	}
}

func TestCompare(t *testing.T) {
	moto := answer{shape: shape{"A": "text", "B": "i-id", "C": "number"}}
	emulator := answer{shape: shape{"A": "text", "B": "text", "D": "arn"}}
	want := []string{"B: moto i-id, emulator text", "C: only moto", "D: only the emulator"}
	if diff := cmp.Diff(want, compare(moto, emulator)); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
	failed := answer{code: codeOf(&smithy.GenericAPIError{Code: "InvalidAMIID.NotFound"})}
	if diff := cmp.Diff([]string{"code: moto success, emulator InvalidAMIID.NotFound"}, compare(moto, failed)); diff != "" {
		t.Errorf("codes (-want +got):\n%s", diff)
	}
	if got := compare(failed, failed); got != nil {
		t.Errorf("equal errors differ: %q", got)
	}
	if got := codeOf(errors.New("connection refused")); got != "connection refused" {
		t.Errorf("code of an error without one: %q", got)
	}
}

func TestDifferences(t *testing.T) {
	d, err := parseDifferences("# one\n# reason\nec2 *: *Instances[].EnaSupport: only the emulator\n\n# another\nec2 X (y): code: moto A, emulator B\n")
	if err != nil {
		t.Fatal(err)
	}
	if d.entries[0].reason != "one reason" {
		t.Errorf("reason %q", d.entries[0].reason)
	}
	got := d.judge([]string{"ec2 RunInstances: Instances[].EnaSupport: only the emulator", "ec2 RunInstances: Instances[].EnaSupport: only moto"})
	want := []string{
		"ec2 RunInstances: Instances[].EnaSupport: only moto",
		`differences.txt line 6: "ec2 X (y): code: moto A, emulator B" is no difference any more`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("judgement (-want +got):\n%s", diff)
	}
	if _, err := parseDifferences("# reason\n\nec2 X: only moto"); err == nil {
		t.Error("a difference without a reason was taken")
	}
	if _, err := parseDifferences(differencesText); err != nil {
		t.Error(err)
	}
}

// Every action of the emulator is called, or known to be unknown to moto; and all
// calls that must succeed do so against the emulator.
func TestSteps(t *testing.T) {
	emu, err := ec2emu.Start(t.Context(), ec2emu.Options{ClusterName: cluster, InstantBoot: true, Parameters: map[string]string{parameter: "value"}})
	if err != nil {
		t.Fatal(err)
	}
	defer emu.Close()
	if got := uncovered(emu.Actions()); got != nil {
		t.Error(got)
	}
	own := newSide(emu.URL())
	if err := own.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range steps() {
		if got := s.ask(t.Context(), own); s.name == s.action() && got.code != "" {
			t.Errorf("%s: %s", s.name, got.code)
		}
	}
}
