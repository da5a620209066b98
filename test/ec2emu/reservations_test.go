// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	gocmp "github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

// templateWith makes the launch template name, which differs from "nodes" in what change does.
func (b *bed) templateWith(t *testing.T, name string, change func(*ec2types.RequestLaunchTemplateData)) {
	t.Helper()
	data := &ec2types.RequestLaunchTemplateData{ImageId: aws.String(b.image(t, "x86_64"))}
	change(data)
	if _, err := b.ec2.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: &name, LaunchTemplateData: data}); err != nil {
		t.Fatal(err)
	}
}

// fleetOf is fleet with another template.
func fleetOf(template string, n int32, capacityType ec2types.DefaultTargetCapacityType, pools ...string) *ec2.CreateFleetInput {
	in := fleet(n, capacityType, pools...)
	in.LaunchTemplateConfigs[0].LaunchTemplateSpecification.LaunchTemplateName = &template
	return in
}

func (b *bed) reservation(t *testing.T, r Reservation) string {
	t.Helper()
	id, err := b.AddReservation(r)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// available is what DescribeCapacityReservations answers for one reservation.
func (b *bed) reservedLeft(t *testing.T, id string) int32 {
	t.Helper()
	out := must[*ec2.DescribeCapacityReservationsOutput](t)(b.ec2.DescribeCapacityReservations(t.Context(), &ec2.DescribeCapacityReservationsInput{CapacityReservationIds: []string{id}}))
	return *out.CapacityReservations[0].AvailableInstanceCount
}

func targeting(id string) func(*ec2types.RequestLaunchTemplateData) {
	return func(d *ec2types.RequestLaunchTemplateData) {
		d.CapacityReservationSpecification = &ec2types.LaunchTemplateCapacityReservationSpecificationRequest{
			CapacityReservationPreference: ec2types.CapacityReservationPreferenceCapacityReservationsOnly,
			CapacityReservationTarget:     &ec2types.CapacityReservationTarget{CapacityReservationId: &id},
		}
	}
}

func TestTargetedReservation(t *testing.T) {
	b := fleetBed(t, Options{})
	id := b.reservation(t, Reservation{ID: "cr-0a", InstanceType: "m5.large", Zone: "us-east-1a", Count: 2, Targeted: true, Tags: map[string]string{"team": "web"}})
	b.templateWith(t, "reserved", targeting(id))
	b.SetStock(Pool{InstanceType: "m5.large"}, 0) // reserved capacity is there all the same

	out := must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), fleetOf("reserved", 3, onDemandType, "m5.large")))
	want := []string{"2 m5.large@us-east-1a on-demand", "ReservationCapacityExceeded m5.large"}
	if diff := gocmp.Diff(want, summary(out)); diff != "" {
		t.Errorf("fleet (-want +got):\n%s", diff)
	}
	if left := b.reservedLeft(t, id); left != 0 {
		t.Errorf("%d left, want 0", left)
	}
	seen := must[*ec2.DescribeInstancesOutput](t)(b.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{filter("capacity-reservation-id", id)}}))
	i := seen.Reservations[0].Instances[0]
	if *i.CapacityReservationId != id || *i.CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId != id ||
		i.CapacityReservationSpecification.CapacityReservationPreference != "capacity-reservations-only" || i.InstanceLifecycle != "" {
		t.Errorf("instance on %v, specification %+v, lifecycle %q", *i.CapacityReservationId, i.CapacityReservationSpecification, i.InstanceLifecycle)
	}
	events := b.Subscribe(t.Context())
	b.Terminate(*i.InstanceId)
	await(t, events, Terminated)
	if left := b.reservedLeft(t, id); left != 1 {
		t.Errorf("%d left after a termination, want 1", left)
	}
	if !b.CancelReservation(id) {
		t.Error("not cancelled")
	}
	out = must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), fleetOf("reserved", 1, onDemandType, "m5.large")))
	if diff := gocmp.Diff([]string{"InvalidCapacityReservationState.Unavailable m5.large"}, summary(out)); diff != "" {
		t.Errorf("fleet into a cancelled reservation (-want +got):\n%s", diff)
	}
	for _, i := range b.Instances() {
		if i.ReservationID != "" {
			t.Errorf("instance %s is still on %s", i.ID, i.ReservationID)
		}
	}
}

// Launches that name no reservation use open ones first, unless they opt out.
func TestOpenReservation(t *testing.T) {
	b := fleetBed(t, Options{})
	id := b.reservation(t, Reservation{InstanceType: "m5.large", Zone: "us-east-1a", Count: 2})
	b.templateWith(t, "none", func(d *ec2types.RequestLaunchTemplateData) {
		d.CapacityReservationSpecification = &ec2types.LaunchTemplateCapacityReservationSpecificationRequest{CapacityReservationPreference: "none"}
	})
	b.SetStock(Pool{InstanceType: "m5.large"}, 1)
	launch := func(in *ec2.CreateFleetInput) []string {
		return summary(must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), in)))
	}
	if diff := gocmp.Diff([]string{"1 m5.large@us-east-1a on-demand"}, launch(fleetOf("none", 1, onDemandType, "m5.large"))); diff != "" || b.reservedLeft(t, id) != 2 {
		t.Errorf("opted out: %d left (-want +got):\n%s", b.reservedLeft(t, id), diff)
	}
	if diff := gocmp.Diff([]string{"2 m5.large@us-east-1a on-demand", "InsufficientInstanceCapacity m5.large"}, launch(fleet(3, onDemandType, "m5.large"))); diff != "" || b.reservedLeft(t, id) != 0 {
		t.Errorf("open: %d left (-want +got):\n%s", b.reservedLeft(t, id), diff)
	}
	if diff := gocmp.Diff([]string{"InsufficientInstanceCapacity m5.large"}, launch(fleet(1, spotType, "m5.large"))); diff != "" {
		t.Errorf("spot (-want +got):\n%s", diff)
	}
}

func TestDescribeCapacityReservations(t *testing.T) {
	b := start(t, Options{})
	shared := Reservation{ID: "cr-0b", InstanceType: "c5.large", Zone: "us-east-1b", Count: 1, OwnerID: "999988887777", Targeted: true}
	b.reservation(t, Reservation{ID: "cr-0a", InstanceType: "m5.large", Zone: "us-east-1a", Count: 1, Tags: map[string]string{"team": "web"}})
	b.reservation(t, shared)
	tests := []struct {
		name string
		in   ec2.DescribeCapacityReservationsInput
		want []string
		code string
	}{
		{"all", ec2.DescribeCapacityReservationsInput{MaxResults: aws.Int32(1000)}, []string{"cr-0a", "cr-0b"}, ""},
		{"by tag", ec2.DescribeCapacityReservationsInput{Filters: []ec2types.Filter{filter("tag:team", "web")}}, []string{"cr-0a"}, ""},
		{"by owner", ec2.DescribeCapacityReservationsInput{Filters: []ec2types.Filter{filter("owner-id", "999988887777"), filter("state", "active")}}, []string{"cr-0b"}, ""},
		{"by criteria", ec2.DescribeCapacityReservationsInput{Filters: []ec2types.Filter{filter("instance-match-criteria", "open")}}, []string{"cr-0a"}, ""},
		{"by id", ec2.DescribeCapacityReservationsInput{CapacityReservationIds: []string{"cr-0b"}}, []string{"cr-0b"}, ""},
		{"unknown id", ec2.DescribeCapacityReservationsInput{CapacityReservationIds: []string{"cr-0c"}}, nil, "InvalidCapacityReservationId.NotFound"},
		{"id and page", ec2.DescribeCapacityReservationsInput{CapacityReservationIds: []string{"cr-0b"}, MaxResults: aws.Int32(5)}, nil, "InvalidParameterCombination"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			out, err := b.ec2.DescribeCapacityReservations(t.Context(), &test.in)
			wantCode(t, err, test.code)
			var got []string
			if out != nil {
				for _, r := range out.CapacityReservations {
					got = append(got, *r.CapacityReservationId)
				}
			}
			if diff := gocmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := b.AddReservation(shared); err == nil {
		t.Error("an id was taken twice")
	}
}

// A capacity block takes only launches of its kind, and ends them before its own end.
func TestCapacityBlock(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	b := fleetBed(t, Options{Clock: clock})
	events := b.Subscribe(t.Context())
	id := b.reservation(t, Reservation{InstanceType: "p5.48xlarge", Zone: "us-east-1a", Count: 1, CapacityBlock: true, Targeted: true, End: clock.Now().Add(24 * time.Hour)})
	b.templateWith(t, "block", func(d *ec2types.RequestLaunchTemplateData) {
		targeting(id)(d)
		d.InstanceMarketOptions = &ec2types.LaunchTemplateInstanceMarketOptionsRequest{MarketType: ec2types.MarketTypeCapacityBlock}
	})
	out := must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), fleetOf("block", 1, onDemandType, "p5.48xlarge")))
	if diff := gocmp.Diff([]string{"InvalidParameterCombination p5.48xlarge"}, summary(out)); diff != "" {
		t.Errorf("as on-demand (-want +got):\n%s", diff)
	}
	out = must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), fleetOf("block", 1, ec2types.DefaultTargetCapacityTypeCapacityBlock, "p5.48xlarge")))
	if diff := gocmp.Diff([]string{"1 p5.48xlarge@us-east-1a capacity-block"}, summary(out)); diff != "" {
		t.Errorf("as a block (-want +got):\n%s", diff)
	}
	await(t, events, Running)
	stepUntilWaited(clock, 24*time.Hour-capacityBlockEnds, 1)
	if reason := await(t, events, ShuttingDown).Reason; reason != "Server.CapacityBlockExpiration: Capacity Block is ending" {
		t.Errorf("ended by %q", reason)
	}
	await(t, events, Terminated)
	stepUntilWaited(clock, capacityBlockEnds, 1)
	for deadline := time.Now().Add(30 * time.Second); ; {
		seen := must[*ec2.DescribeCapacityReservationsOutput](t)(b.ec2.DescribeCapacityReservations(t.Context(), &ec2.DescribeCapacityReservationsInput{Filters: []ec2types.Filter{filter("state", "expired")}}))
		if len(seen.CapacityReservations) == 1 && seen.CapacityReservations[0].EndDate.Equal(clock.Now()) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the block does not expire")
		}
	}
}

func TestInterruptReserved(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	b := fleetBed(t, Options{Clock: clock})
	events := b.Subscribe(t.Context())
	id := b.reservation(t, Reservation{InstanceType: "m5.large", Zone: "us-east-1a", Count: 1, Targeted: true, Interruptible: true})
	b.templateWith(t, "interruptible", func(d *ec2types.RequestLaunchTemplateData) {
		targeting(id)(d)
		d.InstanceMarketOptions = &ec2types.LaunchTemplateInstanceMarketOptionsRequest{MarketType: ec2types.MarketTypeInterruptibleCapacityReservation}
	})
	in := fleetOf("interruptible", 1, ec2types.DefaultTargetCapacityTypeReservedCapacity, "m5.large")
	in.ReservedCapacityOptions = &ec2types.ReservedCapacityOptionsRequest{ReservationTypes: []ec2types.FleetReservationType{ec2types.FleetReservationTypeInterruptibleCapacityReservation}}
	out := must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), in))
	if diff := gocmp.Diff([]string{"1 m5.large@us-east-1a interruptible-capacity-reservation"}, summary(out)); diff != "" {
		t.Fatalf("fleet (-want +got):\n%s", diff)
	}
	await(t, events, Running)
	b.notices(t)
	instance := out.Instances[0].InstanceIds[0]
	if err := b.InterruptReserved(instance); err != nil {
		t.Fatal(err)
	}
	got := b.notices(t)
	if len(got) != 1 || got[0].DetailType != "EC2 Capacity Reservation Instance Interruption Warning" ||
		!gocmp.Equal(got[0].Detail, any(map[string]any{"instance-id": instance, "instance-action": "terminate"})) {
		t.Errorf("notices %+v", got)
	}
	stepUntilWaited(clock, interruptionNotice, 1)
	await(t, events, Terminated)
}

func TestPlacementGroups(t *testing.T) {
	b := fleetBed(t, Options{})
	in := func(g PlacementGroup) string {
		id := b.AddPlacementGroup(g)
		b.templateWith(t, g.Name, func(d *ec2types.RequestLaunchTemplateData) {
			d.Placement = &ec2types.LaunchTemplatePlacementRequest{GroupId: &id}
		})
		return id
	}
	spread := in(PlacementGroup{Name: "spread", Strategy: "spread", Tags: map[string]string{"team": "web"}})
	in(PlacementGroup{Name: "cluster", Strategy: "cluster"})
	in(PlacementGroup{Name: "partition", Strategy: "partition", Partitions: 3})
	launch := func(template string, n int32, pools ...string) []string {
		return summary(must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), fleetOf(template, n, onDemandType, pools...))))
	}
	tests := []struct {
		name string
		got  []string
		want []string
	}{
		{"seven to a zone", launch("spread", 9, "m5.large", "m5.large@b"), []string{"7 m5.large@us-east-1a on-demand", "2 m5.large@us-east-1b on-demand", "InsufficientInstanceCapacity m5.large"}},
		{"one zone", launch("cluster", 2, "c5n.18xlarge"), []string{"2 c5n.18xlarge@us-east-1a on-demand"}},
		{"no other zone", launch("cluster", 1, "c5n.18xlarge@b"), []string{"InsufficientInstanceCapacity c5n.18xlarge"}},
		{"no burstable type", launch("cluster", 1, "t3.large"), []string{"InvalidParameterCombination t3.large"}},
		{"partitions", launch("partition", 6, "m5.large"), []string{"6 m5.large@us-east-1a on-demand"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := gocmp.Diff(test.want, test.got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	partitions := map[int32]int{}
	seen := must[*ec2.DescribeInstancesOutput](t)(b.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{filter("placement-group-name", "partition")}}))
	for _, r := range seen.Reservations {
		for _, i := range r.Instances {
			partitions[*i.Placement.PartitionNumber]++
		}
	}
	if diff := gocmp.Diff(map[int32]int{1: 2, 2: 2, 3: 2}, partitions); diff != "" {
		t.Errorf("instances by partition (-want +got):\n%s", diff)
	}
	groups := must[*ec2.DescribePlacementGroupsOutput](t)(b.ec2.DescribePlacementGroups(t.Context(), &ec2.DescribePlacementGroupsInput{GroupNames: []string{"spread"}, Filters: []ec2types.Filter{filter("state", "available")}}))
	if len(groups.PlacementGroups) != 1 || *groups.PlacementGroups[0].GroupId != spread || groups.PlacementGroups[0].SpreadLevel != "rack" {
		t.Errorf("groups %+v", groups.PlacementGroups)
	}
	_, err := b.ec2.DescribePlacementGroups(t.Context(), &ec2.DescribePlacementGroupsInput{GroupIds: []string{"pg-0"}})
	wantCode(t, err, "InvalidPlacementGroup.Unknown")
}
