// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

const (
	noInstance = "i-0123456789abcdef0"
	template   = "contract"
)

func ec2Of(s *side) *ec2.Client { return s.ec2 }

// fixed is an input that needs nothing of the side.
func fixed[I any](in I) func(*side) *I {
	return func(*side) *I { copied := in; return &copied }
}

func filter(name string, values ...string) ec2types.Filter {
	return ec2types.Filter{Name: &name, Values: values}
}

func lookSteps() []step {
	return []step{
		on("ec2 DescribeAvailabilityZones", ec2Of, (*ec2.Client).DescribeAvailabilityZones, fixed(ec2.DescribeAvailabilityZonesInput{})),
		on("ec2 DescribeAvailabilityZones (unknown zone)", ec2Of, (*ec2.Client).DescribeAvailabilityZones, fixed(ec2.DescribeAvailabilityZonesInput{ZoneNames: []string{"us-east-1z"}})),
		on("ec2 DescribeSubnets (by tag)", ec2Of, (*ec2.Client).DescribeSubnets, fixed(ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{filter("tag:karpenter.sh/discovery", cluster)}})),
		on("ec2 DescribeSubnets (unknown id)", ec2Of, (*ec2.Client).DescribeSubnets, fixed(ec2.DescribeSubnetsInput{SubnetIds: []string{"subnet-0123456789abcdef0"}})),
		on("ec2 DescribeSecurityGroups (by id)", ec2Of, (*ec2.Client).DescribeSecurityGroups, func(s *side) *ec2.DescribeSecurityGroupsInput {
			return &ec2.DescribeSecurityGroupsInput{GroupIds: []string{s.group}}
		}),
		on("ec2 DescribeSecurityGroups (unknown id)", ec2Of, (*ec2.Client).DescribeSecurityGroups, fixed(ec2.DescribeSecurityGroupsInput{GroupIds: []string{"sg-0123456789abcdef0"}})),
		on("ec2 DescribeImages (by id)", ec2Of, (*ec2.Client).DescribeImages, func(s *side) *ec2.DescribeImagesInput {
			return &ec2.DescribeImagesInput{ImageIds: []string{s.image}}
		}),
		on("ec2 DescribeImages (unknown id)", ec2Of, (*ec2.Client).DescribeImages, fixed(ec2.DescribeImagesInput{ImageIds: []string{"ami-0123456789abcdef0"}})),
	}
}

func typeSteps() []step {
	return []step{
		on("ec2 DescribeInstanceTypes (m5.large)", ec2Of, (*ec2.Client).DescribeInstanceTypes, fixed(ec2.DescribeInstanceTypesInput{InstanceTypes: []ec2types.InstanceType{"m5.large"}})),
		on("ec2 DescribeInstanceTypes (g4dn.xlarge)", ec2Of, (*ec2.Client).DescribeInstanceTypes, fixed(ec2.DescribeInstanceTypesInput{InstanceTypes: []ec2types.InstanceType{"g4dn.xlarge"}})),
		on("ec2 DescribeInstanceTypes (unknown type)", ec2Of, (*ec2.Client).DescribeInstanceTypes, fixed(ec2.DescribeInstanceTypesInput{InstanceTypes: []ec2types.InstanceType{"m99.large"}})),
		on("ec2 DescribeInstanceTypeOfferings (by zone)", ec2Of, (*ec2.Client).DescribeInstanceTypeOfferings, fixed(ec2.DescribeInstanceTypeOfferingsInput{
			LocationType: ec2types.LocationTypeAvailabilityZone, Filters: []ec2types.Filter{filter("instance-type", "m5.large")},
		})),
		on("ec2 DescribeSpotPriceHistory (m5.large)", ec2Of, (*ec2.Client).DescribeSpotPriceHistory, fixed(ec2.DescribeSpotPriceHistoryInput{
			InstanceTypes: []ec2types.InstanceType{"m5.large"}, ProductDescriptions: []string{"Linux/UNIX"},
		})),
	}
}

func templateData(s *side) *ec2types.RequestLaunchTemplateData {
	return &ec2types.RequestLaunchTemplateData{
		ImageId: &s.image, InstanceType: ec2types.InstanceTypeM5Large, UserData: aws.String(base64.StdEncoding.EncodeToString([]byte("#!/bin/sh"))),
		IamInstanceProfile: &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String(profile)},
		NetworkInterfaces: []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{
			DeviceIndex: aws.Int32(0), Groups: []string{s.group}, SubnetId: &s.subnet,
		}},
		BlockDeviceMappings: []ec2types.LaunchTemplateBlockDeviceMappingRequest{{
			DeviceName: aws.String("/dev/xvda"), Ebs: &ec2types.LaunchTemplateEbsBlockDeviceRequest{VolumeSize: aws.Int32(20), VolumeType: ec2types.VolumeTypeGp3},
		}},
		MetadataOptions: &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{HttpTokens: ec2types.LaunchTemplateHttpTokensStateRequired},
	}
}

func templateSteps() []step {
	create := func(dryRun bool) func(*side) *ec2.CreateLaunchTemplateInput {
		return func(s *side) *ec2.CreateLaunchTemplateInput {
			return &ec2.CreateLaunchTemplateInput{
				LaunchTemplateName: aws.String(template), LaunchTemplateData: templateData(s), DryRun: aws.Bool(dryRun),
				TagSpecifications: []ec2types.TagSpecification{{
					ResourceType: ec2types.ResourceTypeLaunchTemplate, Tags: []ec2types.Tag{{Key: aws.String("team"), Value: aws.String("web")}},
				}},
			}
		}
	}
	return []step{
		on("ec2 CreateLaunchTemplate (dry run)", ec2Of, (*ec2.Client).CreateLaunchTemplate, create(true)),
		on("ec2 CreateLaunchTemplate", ec2Of, (*ec2.Client).CreateLaunchTemplate, create(false)),
		on("ec2 CreateLaunchTemplate (name in use)", ec2Of, (*ec2.Client).CreateLaunchTemplate, create(false)),
		on("ec2 DescribeLaunchTemplates (by name)", ec2Of, (*ec2.Client).DescribeLaunchTemplates, fixed(ec2.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{template}})),
		on("ec2 DescribeLaunchTemplates (by tag)", ec2Of, (*ec2.Client).DescribeLaunchTemplates, fixed(ec2.DescribeLaunchTemplatesInput{Filters: []ec2types.Filter{filter("tag:team", "web")}})),
		on("ec2 DescribeLaunchTemplates (unknown name)", ec2Of, (*ec2.Client).DescribeLaunchTemplates, fixed(ec2.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{"none"}})),
		on("ec2 DescribeLaunchTemplateVersions", ec2Of, (*ec2.Client).DescribeLaunchTemplateVersions, fixed(ec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateName: aws.String(template)})),
		on("ec2 DescribeLaunchTemplateVersions (unknown name)", ec2Of, (*ec2.Client).DescribeLaunchTemplateVersions, fixed(ec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateName: aws.String("none")})),
	}
}

func instanceSteps() []step {
	run := func(change func(*ec2.RunInstancesInput)) func(*side) *ec2.RunInstancesInput {
		return func(s *side) *ec2.RunInstancesInput {
			in := &ec2.RunInstancesInput{
				MinCount: aws.Int32(1), MaxCount: aws.Int32(1), ImageId: &s.image, InstanceType: ec2types.InstanceTypeM5Large, SubnetId: &s.subnet,
				SecurityGroupIds: []string{s.group},
				TagSpecifications: []ec2types.TagSpecification{{
					ResourceType: ec2types.ResourceTypeInstance, Tags: []ec2types.Tag{{Key: aws.String("team"), Value: aws.String("web")}},
				}},
			}
			change(in)
			return in
		}
	}
	byID := func(ids ...string) func(*side) *ec2.DescribeInstancesInput {
		return func(s *side) *ec2.DescribeInstancesInput {
			if ids == nil {
				return &ec2.DescribeInstancesInput{InstanceIds: []string{s.instance}}
			}
			return &ec2.DescribeInstancesInput{InstanceIds: ids}
		}
	}
	return []step{
		on("ec2 RunInstances (dry run)", ec2Of, (*ec2.Client).RunInstances, run(func(in *ec2.RunInstancesInput) { in.DryRun = aws.Bool(true) })),
		on("ec2 RunInstances (unknown image)", ec2Of, (*ec2.Client).RunInstances, run(func(in *ec2.RunInstancesInput) { in.ImageId = aws.String("ami-0123456789abcdef0") })),
		on("ec2 RunInstances (unknown subnet)", ec2Of, (*ec2.Client).RunInstances, run(func(in *ec2.RunInstancesInput) { in.SubnetId = aws.String("subnet-0123456789abcdef0") })),
		on("ec2 RunInstances", ec2Of, (*ec2.Client).RunInstances, run(func(*ec2.RunInstancesInput) {}), func(s *side, out *ec2.RunInstancesOutput) { s.instance = *out.Instances[0].InstanceId }),
		on("ec2 DescribeInstances (by id)", ec2Of, (*ec2.Client).DescribeInstances, byID()),
		on("ec2 DescribeInstances (unknown id)", ec2Of, (*ec2.Client).DescribeInstances, byID(noInstance)),
		on("ec2 DescribeInstances (malformed id)", ec2Of, (*ec2.Client).DescribeInstances, byID("none")),
		on("ec2 DescribeInstances (by tag and state)", ec2Of, (*ec2.Client).DescribeInstances, fixed(ec2.DescribeInstancesInput{
			Filters: []ec2types.Filter{filter("tag:team", "web"), filter("instance-state-name", "pending", "running")},
		})),
		on("ec2 DescribeInstances (unknown filter)", ec2Of, (*ec2.Client).DescribeInstances, fixed(ec2.DescribeInstancesInput{Filters: []ec2types.Filter{filter("nonsense", "x")}})),
		on("ec2 DescribeInstanceStatus (by id)", ec2Of, (*ec2.Client).DescribeInstanceStatus, func(s *side) *ec2.DescribeInstanceStatusInput {
			return &ec2.DescribeInstanceStatusInput{InstanceIds: []string{s.instance}}
		}),
		on("ec2 DescribeInstanceStatus (unknown id)", ec2Of, (*ec2.Client).DescribeInstanceStatus, fixed(ec2.DescribeInstanceStatusInput{InstanceIds: []string{noInstance}})),
		on("ec2 GetConsoleOutput", ec2Of, (*ec2.Client).GetConsoleOutput, func(s *side) *ec2.GetConsoleOutputInput {
			return &ec2.GetConsoleOutputInput{InstanceId: &s.instance}
		}),
	}
}

func tagSteps() []step {
	name := []ec2types.Tag{{Key: aws.String("Name"), Value: aws.String("node")}}
	create := func(id string) func(*side) *ec2.CreateTagsInput {
		return func(s *side) *ec2.CreateTagsInput {
			if id == "" {
				return &ec2.CreateTagsInput{Resources: []string{s.instance}, Tags: name}
			}
			return &ec2.CreateTagsInput{Resources: []string{id}, Tags: name}
		}
	}
	return []step{
		on("ec2 CreateTags", ec2Of, (*ec2.Client).CreateTags, create("")),
		on("ec2 CreateTags (unknown instance)", ec2Of, (*ec2.Client).CreateTags, create(noInstance)),
		on("ec2 DescribeTags", ec2Of, (*ec2.Client).DescribeTags, func(s *side) *ec2.DescribeTagsInput {
			return &ec2.DescribeTagsInput{Filters: []ec2types.Filter{filter("resource-id", s.instance)}}
		}),
		on("ec2 DeleteTags", ec2Of, (*ec2.Client).DeleteTags, func(s *side) *ec2.DeleteTagsInput {
			return &ec2.DeleteTagsInput{Resources: []string{s.instance}, Tags: name}
		}),
	}
}

func fleetSteps() []step {
	fleet := func(name string, dryRun bool) func(*side) *ec2.CreateFleetInput {
		return func(s *side) *ec2.CreateFleetInput {
			return &ec2.CreateFleetInput{
				Type: ec2types.FleetTypeInstant, DryRun: aws.Bool(dryRun),
				TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{TotalTargetCapacity: aws.Int32(1), DefaultTargetCapacityType: ec2types.DefaultTargetCapacityTypeOnDemand},
				LaunchTemplateConfigs: []ec2types.FleetLaunchTemplateConfigRequest{{
					LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{LaunchTemplateName: &name, Version: aws.String("$Latest")},
					Overrides:                   []ec2types.FleetLaunchTemplateOverridesRequest{{InstanceType: ec2types.InstanceTypeM5Large, SubnetId: &s.subnet}},
				}},
			}
		}
	}
	return []step{
		on("ec2 CreateFleet (dry run)", ec2Of, (*ec2.Client).CreateFleet, fleet(template, true)),
		on("ec2 CreateFleet (unknown template)", ec2Of, (*ec2.Client).CreateFleet, fleet("none", false)),
		on("ec2 CreateFleet", ec2Of, (*ec2.Client).CreateFleet, fleet(template, false)),
	}
}

func endSteps() []step {
	end := func(id string, dryRun bool) func(*side) *ec2.TerminateInstancesInput {
		return func(s *side) *ec2.TerminateInstancesInput {
			in := &ec2.TerminateInstancesInput{InstanceIds: []string{id}, DryRun: aws.Bool(dryRun)}
			if id == "" {
				in.InstanceIds[0] = s.instance
			}
			return in
		}
	}
	return []step{
		on("ec2 TerminateInstances (dry run)", ec2Of, (*ec2.Client).TerminateInstances, end("", true)),
		on("ec2 TerminateInstances (unknown id)", ec2Of, (*ec2.Client).TerminateInstances, end(noInstance, false)),
		on("ec2 TerminateInstances (malformed id)", ec2Of, (*ec2.Client).TerminateInstances, end("none", false)),
		on("ec2 TerminateInstances", ec2Of, (*ec2.Client).TerminateInstances, end("", false)),
		on("ec2 DeleteLaunchTemplate (unknown name)", ec2Of, (*ec2.Client).DeleteLaunchTemplate, fixed(ec2.DeleteLaunchTemplateInput{LaunchTemplateName: aws.String("none")})),
		on("ec2 DeleteLaunchTemplate", ec2Of, (*ec2.Client).DeleteLaunchTemplate, fixed(ec2.DeleteLaunchTemplateInput{LaunchTemplateName: aws.String(template)})),
	}
}
