// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

const reservationsAnswer = `<DescribeCapacityReservationsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r</requestId><capacityReservationSet>
<item><capacityReservationId>cr-2</capacityReservationId><ownerId>111122223333</ownerId><instanceType>m5.large</instanceType><availabilityZone>a</availabilityZone>
<availableInstanceCount>3</availableInstanceCount><state>active</state><instanceMatchCriteria>targeted</instanceMatchCriteria></item>
<item><capacityReservationId>cr-1</capacityReservationId><ownerId>111122223333</ownerId><instanceType>p5.48xlarge</instanceType><availabilityZone>b</availabilityZone>
<availableInstanceCount>1</availableInstanceCount><state>active</state><instanceMatchCriteria>targeted</instanceMatchCriteria><reservationType>capacity-block</reservationType>
<endDate>2030-01-01T00:30:00.000Z</endDate></item>
<item><capacityReservationId>cr-3</capacityReservationId><ownerId>111122223333</ownerId><instanceType>m5.large</instanceType><availabilityZone>a</availabilityZone>
<availableInstanceCount>9</availableInstanceCount><state>active</state><instanceMatchCriteria>open</instanceMatchCriteria><endDate>2029-12-31T00:00:00.000Z</endDate></item>
<item><capacityReservationId>cr-4</capacityReservationId><ownerId>111122223333</ownerId><instanceType>m5.large</instanceType><availabilityZone>a</availabilityZone>
<availableInstanceCount>9</availableInstanceCount><state>active</state><instanceMatchCriteria>by-magic</instanceMatchCriteria></item>
</capacityReservationSet></DescribeCapacityReservationsResponse>`

func TestCapacityReservations(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	c, sent := replay(t, map[string][]string{"DescribeCapacityReservations": {
		failure("InvalidCapacityReservationId.NotFound", "gone"), reservationsAnswer,
	}}, Options{Clock: clocktesting.NewFakePassiveClock(now)})
	got, err := c.CapacityReservations(t.Context(), []v1.CapacityReservationSelectorTerm{
		{ID: "cr-0"}, {Tags: map[string]string{"team": "a"}, OwnerID: "111122223333", InstanceMatchCriteria: "targeted"}, {OwnerID: "111122223333"},
	})
	if err != nil {
		t.Fatal(err)
	}
	reservation := func(id, typ, zone string, kind v1.CapacityReservationType) v1.CapacityReservation {
		return v1.CapacityReservation{
			ID: id, InstanceType: typ, AvailabilityZone: zone, OwnerID: "111122223333", InstanceMatchCriteria: "targeted",
			ReservationType: kind, State: v1.CapacityReservationStateActive,
		}
	}
	block := reservation("cr-1", "p5.48xlarge", "b", v1.CapacityReservationTypeCapacityBlock)
	block.EndTime = &metav1.Time{Time: now.Add(30 * time.Minute)}
	block.State = v1.CapacityReservationStateExpiring
	want := []Reservation{{block, 1}, {reservation("cr-2", "m5.large", "a", v1.CapacityReservationTypeDefault), 3}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reservations (-want +got):\n%s", diff)
	}
	requests := sent.sent("DescribeCapacityReservations")
	if len(requests) != 2 {
		t.Fatalf("%d requests, want two: an owner alone selects nothing", len(requests))
	}
	filters := map[string]string{}
	for i := 1; requests[1].Get("Filter."+strconv.Itoa(i)+".Name") != ""; i++ {
		p := "Filter." + strconv.Itoa(i)
		filters[requests[1].Get(p+".Name")] = requests[1].Get(p + ".Value.1")
	}
	wantFilters := map[string]string{"state": "active", "owner-id": "111122223333", "instance-match-criteria": "targeted", "tag:team": "a"}
	if diff := cmp.Diff(wantFilters, filters); diff != "" {
		t.Errorf("filters (-want +got):\n%s", diff)
	}
}

type source struct {
	free map[string]int32
	err  error
}

func (s *source) ReservationsByID(_ context.Context, ids []string) ([]Reservation, error) {
	var out []Reservation
	for _, id := range ids {
		if n, ok := s.free[id]; ok {
			out = append(out, Reservation{CapacityReservation: v1.CapacityReservation{ID: id}, Free: n})
		}
	}
	return out, s.err
}

func TestSlots(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	shortages := NewShortages(clk)
	src := &source{free: map[string]int32{"cr-1": 2}}
	s := NewSlots(src, shortages, clk)
	offering := capacity.OfferingKey{InstanceType: "m5.large", Zone: "a", CapacityType: "reserved", ReservationID: "cr-1"}
	expect := func(when string, free int32, out bool) {
		t.Helper()
		if got := s.Free("cr-1"); got != free {
			t.Errorf("%s: Free = %d, want %d", when, got, free)
		}
		if got := shortages.Out(offering); got != out {
			t.Errorf("%s: Out = %v, want %v", when, got, out)
		}
	}
	refresh := func() {
		t.Helper()
		if err := s.Refresh(t.Context(), []string{"cr-1"}); err != nil {
			t.Fatal(err)
		}
	}
	expect("nothing known", 0, true)
	refresh()
	expect("reported", 2, false)
	if n := s.Take("cr-1", 5); n != 2 {
		t.Errorf("Take(5) = %d, want the two there are", n)
	}
	expect("all taken", 0, true)
	s.Return("cr-1", 1)
	expect("one given back", 1, false)
	// A report from the moment of the launch may not have it yet.
	clk.Step(slotsSettle - time.Second)
	refresh()
	expect("a report too early to have the launch", 1, false)
	clk.Step(time.Second)
	src.free["cr-1"] = 1
	refresh()
	expect("a report that has the launch", 1, false)
	s.Exhausted("cr-1")
	expect("EC2 says full", 0, true)
	src.err = errors.New("no answer")
	if err := s.Refresh(t.Context(), []string{"cr-1"}); err == nil {
		t.Error("a failed refresh is no error")
	}
	expect("a failed refresh changes nothing", 0, true)
	src.err = nil
	refresh()
	expect("reported again", 1, false)
	delete(src.free, "cr-1")
	refresh()
	expect("the reservation is over", 0, true)
}

func TestReservedOfferings(t *testing.T) {
	cs := stocked(t, clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)))
	class := readyClass()
	reservation := func(id, typ, zone string) v1.CapacityReservation {
		return v1.CapacityReservation{ID: id, InstanceType: typ, AvailabilityZone: zone, ReservationType: "default", State: "active"}
	}
	expiring := reservation("cr-4", "m5.large", "a")
	expiring.State = v1.CapacityReservationStateExpiring
	class.Status.CapacityReservations = []v1.CapacityReservation{
		reservation("cr-1", "m5.large", "a"), reservation("cr-2", "m5.large", "c"), reservation("cr-3", "c6g.large", "b"), expiring,
	}
	cat := cs.For(class)
	var got []string
	for i := range cat.Match(capacity.Requirements{}.With(capacity.In(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeReserved))).All {
		o := cat.Offerings[i]
		got = append(got, o.ReservationID+" "+o.Type.Name+" "+o.Zone)
	}
	// Cheapest first, and before all others; not in zone c, where the class has no subnet.
	if diff := cmp.Diff([]string{"cr-3 c6g.large b", "cr-1 m5.large a"}, got); diff != "" {
		t.Errorf("reserved offerings (-want +got):\n%s", diff)
	}
	if first := cat.Offerings[0]; first.ReservationID != "cr-3" || first.Price <= 0 || first.Price > 1e-6 {
		t.Errorf("cheapest offering = %+v, want the reservation, for next to nothing", first)
	}
	for key, want := range map[string]int{capacity.ReservationTypeLabel: 2, capacity.ReservationInterruptibleLabel: 2} {
		if n := cat.Match(capacity.Requirements{}.With(capacity.Exists(key))).Len(); n != want {
			t.Errorf("%d offerings have label %q, want the %d reserved ones", n, key, want)
		}
	}
}
