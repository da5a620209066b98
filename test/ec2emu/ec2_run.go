// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// runInstances launches from parameters, from a template, or from a template
// under parameters. Unlike a fleet it is all or nothing above MinCount.
func (e *Emulator) runInstances(c *call, in *ec2.RunInstancesInput) (*ec2.RunInstancesOutput, error) {
	c.latency = e.launchDelay(c, runInstancesAnswer())
	if in.MinCount == nil || in.MaxCount == nil {
		return nil, missing("MinCount and MaxCount")
	}
	least, most := int(*in.MinCount), int(*in.MaxCount)
	if least < 1 || most < least {
		return nil, invalid("InvalidParameterValue", "Invalid value '%d' for MinCount or '%d' for MaxCount", least, most)
	}
	return once(&e.world, c, aws.ToString(in.ClientToken), in, func() (*ec2.RunInstancesOutput, error) {
		s, err := e.runSpec(in)
		if err != nil {
			return nil, err
		}
		n, refusal := e.room(s, most)
		if refusal != nil && n < least {
			return nil, refusal
		}
		if aws.ToBool(in.DryRun) {
			return nil, dryRun()
		}
		e.hold(s, n)
		out := &ec2.RunInstancesOutput{OwnerId: aws.String(e.opts.AccountID)}
		for _, i := range e.launch(c, s, n) {
			out.ReservationId = aws.String(i.reservation)
			out.Instances = append(out.Instances, e.sdkInstance(i))
		}
		return out, nil
	})
}

func (e *Emulator) runSpec(in *ec2.RunInstancesInput) (*launchSpec, error) {
	data, t, err := e.runData(in)
	if err != nil {
		return nil, err
	}
	override := ec2types.FleetLaunchTemplateOverrides{ImageId: in.ImageId, InstanceType: in.InstanceType, SubnetId: in.SubnetId}
	if in.Placement != nil {
		override.AvailabilityZone = in.Placement.AvailabilityZone
	}
	s, refusal := e.resolve(data, override)
	if refusal != nil {
		if refusal.code == "InvalidFleetConfiguration" {
			refusal.code = "Unsupported" // RunInstances' name for the same
		}
		return nil, refusal
	}
	s.template, s.token, s.capacityType = t, aws.ToString(in.ClientToken), onDemand
	switch s.market {
	case ec2types.MarketTypeSpot:
		s.capacityType = spot
	case ec2types.MarketTypeCapacityBlock:
		s.capacityType = capacityBlock
	case ec2types.MarketTypeInterruptibleCapacityReservation:
		s.capacityType = interruptible
	}
	for _, spec := range in.TagSpecifications {
		if err := checkTags(spec.Tags); err != nil {
			return nil, err
		}
		s.tags[spec.ResourceType] = mergeTags(s.tags[spec.ResourceType], spec.Tags)
	}
	return s, nil
}

// runData merges the template, if one is named, with the request's own members.
func (e *Emulator) runData(in *ec2.RunInstancesInput) (*ec2types.ResponseLaunchTemplateData, *template, error) {
	data := &ec2types.ResponseLaunchTemplateData{}
	var t *template
	if spec := in.LaunchTemplate; spec != nil {
		found, err := e.findTemplate(spec.LaunchTemplateId, spec.LaunchTemplateName, spec.Version)
		if err != nil {
			return nil, nil, err
		}
		t = found
		copied := *t.data
		data = &copied
	}
	own, err := convert[ec2types.ResponseLaunchTemplateData](map[string]any{
		"BlockDeviceMappings": in.BlockDeviceMappings, "NetworkInterfaces": in.NetworkInterfaces, "SecurityGroupIds": in.SecurityGroupIds,
		"MetadataOptions": in.MetadataOptions, "Placement": in.Placement, "CapacityReservationSpecification": in.CapacityReservationSpecification,
	})
	if err != nil {
		return nil, nil, err
	}
	if own.BlockDeviceMappings != nil {
		data.BlockDeviceMappings = own.BlockDeviceMappings
	}
	if own.NetworkInterfaces != nil {
		data.NetworkInterfaces = own.NetworkInterfaces
	}
	if own.SecurityGroupIds != nil {
		data.SecurityGroupIds = own.SecurityGroupIds
	}
	if own.MetadataOptions != nil {
		data.MetadataOptions = own.MetadataOptions
	}
	if own.Placement != nil {
		data.Placement = own.Placement
	}
	if own.CapacityReservationSpecification != nil {
		data.CapacityReservationSpecification = own.CapacityReservationSpecification
	}
	if in.UserData != nil {
		data.UserData = in.UserData
	}
	if p := in.IamInstanceProfile; p != nil {
		data.IamInstanceProfile = &ec2types.LaunchTemplateIamInstanceProfileSpecification{Arn: p.Arn, Name: p.Name}
	}
	if m := in.InstanceMarketOptions; m != nil {
		data.InstanceMarketOptions = &ec2types.LaunchTemplateInstanceMarketOptions{MarketType: m.MarketType}
	}
	return data, t, nil
}
