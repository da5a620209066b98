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
	switch req.CapacityType {
	case karpv1.CapacityTypeSpot:
		in.TargetCapacitySpecification.DefaultTargetCapacityType = ec2types.DefaultTargetCapacityTypeSpot
		in.SpotOptions = &ec2types.SpotOptionsRequest{AllocationStrategy: ec2types.SpotAllocationStrategyPriceCapacityOptimized}
	case karpv1.CapacityTypeOnDemand:
		in.TargetCapacitySpecification.DefaultTargetCapacityType = ec2types.DefaultTargetCapacityTypeOnDemand
		in.OnDemandOptions = &ec2types.OnDemandOptionsRequest{AllocationStrategy: ec2types.FleetOnDemandAllocationStrategyLowestPrice}
	default:
		return nil, invalid("creating a fleet: capacity type %q is not supported", req.CapacityType)
	}
	return in, nil
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
	for _, o := range req.Overrides {
		zones[o.SubnetID] = o.Zone
	}
	r := FleetResult{FleetID: aws.ToString(out.FleetId)}
	for _, group := range out.Instances {
		o := overridesOf(group.LaunchTemplateAndOverrides)
		i := FleetInstance{
			InstanceType: string(group.InstanceType),
			SubnetID:     cmp.Or(aws.ToString(group.SubnetId), aws.ToString(o.SubnetId)),
			ImageID:      aws.ToString(o.ImageId),
			CapacityType: req.CapacityType,
		}
		i.Zone = cmp.Or(aws.ToString(group.AvailabilityZone), aws.ToString(o.AvailabilityZone), zones[i.SubnetID])
		for _, id := range group.InstanceIds {
			i.ID = id
			r.Instances = append(r.Instances, i)
		}
	}
	seen := map[string]bool{}
	for _, e := range out.Errors {
		fe := newFleetError(req, e, zones)
		var key strings.Builder
		key.WriteString(fe.Code)
		for _, k := range fe.Offerings {
			key.WriteString("/" + k.InstanceType + "/" + k.Zone)
		}
		if !seen[key.String()] {
			seen[key.String()] = true
			r.Errors = append(r.Errors, fe)
		}
	}
	return r
}

func newFleetError(req FleetRequest, e ec2types.CreateFleetError, zones map[string]string) *capacity.Error {
	code, message := aws.ToString(e.ErrorCode), aws.ToString(e.ErrorMessage)
	out := &capacity.Error{Kind: kindOfAnswer(code, message, 0), Code: code, Err: errors.New(code + ": " + message)}
	if o := overridesOf(e.LaunchTemplateAndOverrides); o.InstanceType != "" {
		out.Offerings = []capacity.OfferingKey{{
			InstanceType: string(o.InstanceType),
			Zone:         cmp.Or(aws.ToString(o.AvailabilityZone), zones[aws.ToString(o.SubnetId)]),
			CapacityType: req.CapacityType,
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
