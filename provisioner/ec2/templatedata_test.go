// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/google/go-cmp/cmp"
)

func TestTemplatePlacementAndReservation(t *testing.T) {
	tests := []struct {
		name                       string
		t                          Template
		tenancy, group, preference string
		partition                  int32
		reservation, market        string
	}{
		{"nothing asked: no reservation, not even an open one", Template{}, "default", "", "none", 0, "", ""},
		{"placed", Template{Tenancy: "dedicated", PlacementGroup: "pg-1", Partition: 2}, "dedicated", "pg-1", "none", 2, "", ""},
		{"reserved", Template{Reservation: &ReservationRef{ID: "cr-1"}}, "default", "", "capacity-reservations-only", 0, "cr-1", ""},
		{"block", Template{Reservation: &ReservationRef{ID: "cr-1", Block: true}}, "default", "", "capacity-reservations-only", 0, "cr-1", "capacity-block"},
		{
			"interruptible",
			Template{Reservation: &ReservationRef{ID: "cr-1", Interruptible: true}},
			"default", "", "capacity-reservations-only", 0, "cr-1",
			"interruptible-capacity-reservation",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := templateData(tt.t)
			got := []any{string(d.Placement.Tenancy), aws.ToString(d.Placement.GroupId), aws.ToInt32(d.Placement.PartitionNumber), string(d.CapacityReservationSpecification.CapacityReservationPreference)}
			reservation, market := "", ""
			if target := d.CapacityReservationSpecification.CapacityReservationTarget; target != nil {
				reservation = aws.ToString(target.CapacityReservationId)
			}
			if d.InstanceMarketOptions != nil {
				market = string(d.InstanceMarketOptions.MarketType)
			}
			got = append(got, reservation, market)
			want := []any{tt.tenancy, tt.group, tt.partition, tt.preference, tt.reservation, tt.market}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("tenancy, group, partition, preference, reservation, market (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTemplateInterfaces(t *testing.T) {
	type nic struct {
		card, device   int32
		kind           string
		groups         int
		v4, v6         int32 // prefixes
		primary        bool
		public, tracks bool
	}
	yes := true
	base := Template{SecurityGroups: []string{"sg-1"}, PublicIP: &yes, IPPrefixes: 2, ConnectionTracking: &ConnectionTracking{UDP: 40}}
	with := func(change func(*Template)) Template { t := base; change(&t); return t }
	tests := []struct {
		name string
		t    Template
		want []nic
	}{
		{"one", base, []nic{{0, 0, "interface", 1, 2, 0, false, true, true}}},
		{"IPv6", with(func(t *Template) { t.IPv6 = true }), []nic{{0, 0, "interface", 1, 0, 2, true, true, true}}},
		{"EFA", with(func(t *Template) { t.EFAs = 3 }), []nic{
			{0, 0, "efa", 1, 2, 0, false, true, true}, {1, 1, "efa", 1, 2, 0, false, true, true}, {2, 1, "efa", 1, 2, 0, false, true, true},
		}},
		{"listed ones win", with(func(t *Template) {
			t.EFAs, t.NetworkInterfaces = 3, []NetworkInterface{{}, {Card: 1, Device: 1, EFAOnly: true}}
		}), []nic{{0, 0, "interface", 1, 2, 0, false, true, true}, {1, 1, "efa-only", 1, 0, 0, false, false, false}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []nic
			for _, i := range interfaces(tt.t) {
				got = append(got, nic{
					aws.ToInt32(i.NetworkCardIndex), aws.ToInt32(i.DeviceIndex), aws.ToString(i.InterfaceType), len(i.Groups), aws.ToInt32(i.Ipv4PrefixCount),
					aws.ToInt32(i.Ipv6PrefixCount), aws.ToBool(i.PrimaryIpv6), i.AssociatePublicIpAddress != nil, i.ConnectionTrackingSpecification != nil,
				})
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(nic{})); diff != "" {
				t.Errorf("interfaces (-want +got):\n%s", diff)
			}
		})
	}
}
