// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// maxOverrides is EC2's limit on the launch options of one instant fleet.
const maxOverrides = 300

// Fleet asks EC2 for instances (CreateFleet, type instant), in one attempt. The
// same token and parameters never launch twice, so whoever gets an error of kind
// Unavailable or Throttled repeats the call as it was. The error is about the
// request as a whole; what single offerings failed with is in the result, which may
// also hold fewer instances than were asked for, down to none.
func (c *Client) Fleet(ctx context.Context, req FleetRequest) (FleetResult, error) {
	input, err := fleetInput(req)
	if err != nil {
		return FleetResult{}, err
	}
	out, err := c.ec2.CreateFleet(ctx, input, once)
	if err != nil {
		return FleetResult{}, wrap(err, "creating a fleet of %d", req.Count)
	}
	return newFleetResult(req, out), nil
}

func fleetInput(req FleetRequest) (*ec2.CreateFleetInput, error) {
	switch {
	case len(req.Overrides) == 0 || len(req.Overrides) > maxOverrides:
		return nil, invalid("creating a fleet: %d overrides are not between 1 and %d", len(req.Overrides), maxOverrides)
	case req.Count < 1:
		return nil, invalid("creating a fleet: a count of %d is not positive", req.Count)
	}
	in := &ec2.CreateFleetInput{
		Type:                  ec2types.FleetTypeInstant,
		ClientToken:           optional(req.Token),
		Context:               optional(req.Context),
		LaunchTemplateConfigs: templateConfigs(req.Overrides),
		TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{
			TotalTargetCapacity: aws.Int32(req.Count),
		},
		TagSpecifications: tagSpecs(req.Tags, ec2types.ResourceTypeInstance, ec2types.ResourceTypeVolume, ec2types.ResourceTypeFleet),
	}
	return in, buyAs(in, req)
}

// buyAs sets the market the fleet buys in and how EC2 chooses among the overrides. On-demand reservations are named by the
// template and bought as on-demand instances; capacity blocks and interruptible reservations are markets of their own.
func buyAs(in *ec2.CreateFleetInput, req FleetRequest) error {
	onDemand, spot := ec2types.FleetOnDemandAllocationStrategyLowestPrice, ec2types.SpotAllocationStrategyPriceCapacityOptimized
	if req.Prioritized {
		onDemand, spot = ec2types.FleetOnDemandAllocationStrategyPrioritized, ec2types.SpotAllocationStrategyCapacityOptimizedPrioritized
	}
	market := &in.TargetCapacitySpecification.DefaultTargetCapacityType
	switch {
	case req.CapacityType == karpv1.CapacityTypeSpot:
		*market = ec2types.DefaultTargetCapacityTypeSpot
		in.SpotOptions = &ec2types.SpotOptionsRequest{AllocationStrategy: spot}
	case req.CapacityType == karpv1.CapacityTypeReserved && req.Block:
		*market = ec2types.DefaultTargetCapacityTypeCapacityBlock
	case req.CapacityType == karpv1.CapacityTypeReserved && req.Interruptible:
		*market = ec2types.DefaultTargetCapacityTypeReservedCapacity
		in.ReservedCapacityOptions = &ec2types.ReservedCapacityOptionsRequest{
			ReservationTypes: []ec2types.FleetReservationType{ec2types.FleetReservationTypeInterruptibleCapacityReservation},
		}
	case req.CapacityType == karpv1.CapacityTypeOnDemand || req.CapacityType == karpv1.CapacityTypeReserved:
		*market = ec2types.DefaultTargetCapacityTypeOnDemand
		in.OnDemandOptions = &ec2types.OnDemandOptionsRequest{AllocationStrategy: onDemand}
	default:
		return invalid("creating a fleet: capacity type %q is not supported", req.CapacityType)
	}
	return nil
}

// templateConfigs groups the overrides by launch template, in the order of their first appearance.
func templateConfigs(overrides []FleetOverride) []ec2types.FleetLaunchTemplateConfigRequest {
	var out []ec2types.FleetLaunchTemplateConfigRequest
	index := map[string]int{}
	for _, o := range overrides {
		i, ok := index[o.TemplateName]
		if !ok {
			i = len(out)
			index[o.TemplateName] = i
			out = append(out, ec2types.FleetLaunchTemplateConfigRequest{
				LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{
					LaunchTemplateName: aws.String(o.TemplateName),
					Version:            aws.String("$Latest"),
				},
			})
		}
		out[i].Overrides = append(out[i].Overrides, ec2types.FleetLaunchTemplateOverridesRequest{
			InstanceType:     ec2types.InstanceType(o.InstanceType),
			SubnetId:         optional(o.SubnetID),
			AvailabilityZone: optional(o.Zone),
			ImageId:          optional(o.ImageID),
			Priority:         aws.Float64(o.Priority),
		})
	}
	return out
}

// newFleetResult reads an answer. EC2 may leave out of its overrides what follows from the request; it is filled in.
func newFleetResult(req FleetRequest, out *ec2.CreateFleetOutput) FleetResult {
	zones := make(map[string]string, len(req.Overrides)) // by subnet
	reservations := map[string]string{}                  // by template
	for _, o := range req.Overrides {
		zones[o.SubnetID] = o.Zone
		reservations[o.TemplateName] = o.ReservationID
	}
	r := FleetResult{FleetID: aws.ToString(out.FleetId)}
	for _, group := range out.Instances {
		o := overridesOf(group.LaunchTemplateAndOverrides)
		i := FleetInstance{
			InstanceType: string(group.InstanceType),
			SubnetID:     cmp.Or(aws.ToString(group.SubnetId), aws.ToString(o.SubnetId)),
			ImageID:      aws.ToString(o.ImageId),
			CapacityType: req.CapacityType,

			ReservationID: reservations[templateOf(group.LaunchTemplateAndOverrides)],
		}
		i.Zone = cmp.Or(aws.ToString(group.AvailabilityZone), aws.ToString(o.AvailabilityZone), zones[i.SubnetID])
		for _, id := range group.InstanceIds {
			i.ID = id
			r.Instances = append(r.Instances, i)
		}
	}
	seen := map[string]bool{}
	for _, e := range out.Errors {
		fe := newFleetError(req, e, zones, reservations)
		var key strings.Builder
		key.WriteString(fe.Code)
		for _, k := range fe.Offerings {
			key.WriteString("/" + k.InstanceType + "/" + k.Zone + "/" + k.ReservationID)
		}
		if !seen[key.String()] {
			seen[key.String()] = true
			r.Errors = append(r.Errors, fe)
		}
	}
	return r
}

func newFleetError(req FleetRequest, e ec2types.CreateFleetError, zones, reservations map[string]string) *capacity.Error {
	code, message := aws.ToString(e.ErrorCode), aws.ToString(e.ErrorMessage)
	out := &capacity.Error{Err: errors.New(code + ": " + message)}
	out.Kind, out.Code = judge(code, message, 0)
	if o := overridesOf(e.LaunchTemplateAndOverrides); o.InstanceType != "" {
		out.Offerings = []capacity.OfferingKey{{
			InstanceType: string(o.InstanceType),
			Zone:         cmp.Or(aws.ToString(o.AvailabilityZone), zones[aws.ToString(o.SubnetId)]),
			CapacityType: req.CapacityType,

			ReservationID: reservations[templateOf(e.LaunchTemplateAndOverrides)],
		}}
	}
	return out
}

func overridesOf(r *ec2types.LaunchTemplateAndOverridesResponse) ec2types.FleetLaunchTemplateOverrides {
	if r == nil || r.Overrides == nil {
		return ec2types.FleetLaunchTemplateOverrides{}
	}
	return *r.Overrides
}

// templateOf is the name of the launch template an answer is about, "" if it does not say.
func templateOf(r *ec2types.LaunchTemplateAndOverridesResponse) string {
	if r == nil || r.LaunchTemplateSpecification == nil {
		return ""
	}
	return aws.ToString(r.LaunchTemplateSpecification.LaunchTemplateName)
}
