// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func (e *Emulator) describeCapacityReservations(_ *call, in *ec2.DescribeCapacityReservationsInput) (*ec2.DescribeCapacityReservationsOutput, error) {
	if len(in.CapacityReservationIds) > 0 && in.MaxResults != nil {
		return nil, invalid("InvalidParameterCombination", "The parameter CapacityReservationId cannot be used with the parameter maxResults")
	}
	for _, id := range in.CapacityReservationIds {
		switch {
		case !strings.HasPrefix(id, "cr-"):
			return nil, invalid("InvalidCapacityReservationId.Malformed", "Invalid id: \"%s\"", id)
		case e.world.reservation(id) == nil:
			return nil, invalid("InvalidCapacityReservationId.NotFound", "The capacity reservation '%s' does not exist", id)
		}
	}
	var found []ec2types.CapacityReservation
	for _, r := range e.world.reservations {
		if !listed(in.CapacityReservationIds, r.ID) {
			continue
		}
		out := e.sdkReservation(r)
		ok, err := matches(in.Filters, out.Tags, func(name string) ([]string, bool) { return reservationFilter(&out, name) })
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, out)
		}
	}
	items, next, err := page(found, in.MaxResults, in.NextToken, pageLimits{1, 1000, 1000})
	if err != nil {
		return nil, err
	}
	return &ec2.DescribeCapacityReservationsOutput{CapacityReservations: items, NextToken: next}, nil
}

func reservationFilter(r *ec2types.CapacityReservation, name string) ([]string, bool) {
	switch name {
	case "instance-type":
		return one(*r.InstanceType)
	case "owner-id":
		return one(*r.OwnerId)
	case "instance-platform":
		return one(string(r.InstancePlatform))
	case "availability-zone":
		return one(*r.AvailabilityZone)
	case "availability-zone-id":
		return one(*r.AvailabilityZoneId)
	case "tenancy":
		return one(string(r.Tenancy))
	case "state":
		return one(string(r.State))
	case "start-date":
		return one(r.StartDate.UTC().Format(timeFormat))
	case "end-date":
		if r.EndDate == nil {
			return nil, true
		}
		return one(r.EndDate.UTC().Format(timeFormat))
	case "end-date-type":
		return one(string(r.EndDateType))
	case "instance-match-criteria":
		return one(string(r.InstanceMatchCriteria))
	case "capacity-reservation-id":
		return one(*r.CapacityReservationId)
	default:
		return nil, false
	}
}

func (e *Emulator) sdkReservation(r *reservation) ec2types.CapacityReservation {
	out := ec2types.CapacityReservation{
		CapacityReservationId: aws.String(r.ID), OwnerId: aws.String(r.OwnerID), State: r.state,
		CapacityReservationArn: aws.String("arn:aws:ec2:" + e.opts.Region + ":" + r.OwnerID + ":capacity-reservation/" + r.ID),
		InstanceType:           aws.String(r.InstanceType), InstancePlatform: ec2types.CapacityReservationInstancePlatformLinuxUnix,
		AvailabilityZone: aws.String(r.Zone), AvailabilityZoneId: aws.String(e.catalog.zoneIDOf(r.Zone)),
		Tenancy: ec2types.CapacityReservationTenancyDefault, TotalInstanceCount: aws.Int32(int32(r.Count)),
		AvailableInstanceCount: aws.Int32(int32(r.free())), EbsOptimized: aws.Bool(false), EphemeralStorage: aws.Bool(false),
		StartDate: aws.Time(r.Start), CreateDate: aws.Time(r.Start), EndDateType: ec2types.EndDateTypeUnlimited,
		InstanceMatchCriteria: ec2types.InstanceMatchCriteriaOpen, ReservationType: ec2types.CapacityReservationTypeDefault,
		Interruptible: aws.Bool(r.Interruptible), Tags: e.world.tags[r.ID],
	}
	if !r.End.IsZero() {
		out.EndDate, out.EndDateType = aws.Time(r.End), ec2types.EndDateTypeLimited
	}
	if r.Targeted {
		out.InstanceMatchCriteria = ec2types.InstanceMatchCriteriaTargeted
	}
	if r.CapacityBlock {
		out.ReservationType = ec2types.CapacityReservationTypeCapacityBlock
	}
	return out
}

// sdkReservationSpec is what an instance says about reservations.
func (i *instance) sdkReservationSpec() *ec2types.CapacityReservationSpecificationResponse {
	out := &ec2types.CapacityReservationSpecificationResponse{CapacityReservationPreference: i.preference}
	if i.preference == "" && i.target == nil {
		out.CapacityReservationPreference = ec2types.CapacityReservationPreferenceOpen
	}
	if i.target != nil {
		out.CapacityReservationTarget = &ec2types.CapacityReservationTargetResponse{CapacityReservationId: aws.String(i.target.ID)}
	}
	return out
}
