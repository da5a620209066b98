// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/test/ec2emu"
)

func TestComplaints(t *testing.T) {
	log := strings.Join([]string{
		`{"level":"INFO","message":"launched nodeclaim","controller":"nodeclaim.lifecycle"}`,
		`{"level":"ERROR","message":"Reconciler error","controller":"nodeclass","error":"describing subnets"}`,
		`{"level":"ERROR","message":"Reconciler error","controller":"nodeclass","error":"describing subnets"}`,
		`{"level":"ERROR","message":"Reconciler error","controller":"providers.version","error":"karpenter is not compatible with kubernetes version"}`,
		`not JSON`,
		`panic: no region`,
	}, "\n")
	got, err := complaints(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"nodeclass: Reconciler error: describing subnets", "panic: no region"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("complaints (-want +got):\n%s", diff)
	}
}

func TestUnknown(t *testing.T) {
	got := unknown([]ec2emu.Request{
		{Service: "ec2", Action: "CreateFleet"},
		{Service: "ec2", Action: "CreateFleet", Code: "DryRunOperation"},
		{Service: "ec2", Action: "DescribeHosts", Code: "InvalidAction"},
		{Service: "ec2", Action: "DescribeHosts", Code: "InvalidAction"},
	})
	want := []string{"the emulator answered InvalidAction to ec2 DescribeHosts"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unknown requests (-want +got):\n%s", diff)
	}
}
