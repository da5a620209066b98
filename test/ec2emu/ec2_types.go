// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func (e *Emulator) describeInstanceTypes(_ *call, in *ec2.DescribeInstanceTypesInput) (*ec2.DescribeInstanceTypesOutput, error) {
	var unknown []string
	for _, name := range in.InstanceTypes {
		if e.catalog.byName[string(name)] == nil {
			unknown = append(unknown, string(name))
		}
	}
	if len(unknown) > 0 {
		return nil, invalid("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", strings.Join(unknown, ", "))
	}
	var found []ec2types.InstanceTypeInfo
	for _, o := range e.catalog.offers {
		if len(in.InstanceTypes) > 0 && !slices.Contains(in.InstanceTypes, o.info.InstanceType) {
			continue
		}
		ok, err := matches(in.Filters, nil, func(name string) ([]string, bool) { return typeFilter(o.info, name) })
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, *o.info)
		}
	}
	items, next, err := page(found, in.MaxResults, in.NextToken, pageLimits{5, 100, 100})
	if err != nil {
		return nil, err
	}
	return &ec2.DescribeInstanceTypesOutput{InstanceTypes: items, NextToken: next}, nil
}

func texts[T ~string](values []T) ([]string, bool) {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out, true
}

// typeFilter has the filters of DescribeInstanceTypes that select on members a
// scheduler asks for; EC2 has more, on EBS and network figures.
func typeFilter(t *ec2types.InstanceTypeInfo, name string) ([]string, bool) {
	switch name {
	case "instance-type":
		return one(string(t.InstanceType))
	case "hypervisor":
		return one(string(t.Hypervisor))
	case "supported-virtualization-type":
		return texts(t.SupportedVirtualizationTypes)
	case "supported-usage-class":
		return texts(t.SupportedUsageClasses)
	case "supported-root-device-type":
		return texts(t.SupportedRootDeviceTypes)
	case "supported-boot-mode":
		return texts(t.SupportedBootModes)
	case "processor-info.supported-architecture":
		return texts(t.ProcessorInfo.SupportedArchitectures)
	case "processor-info.supported-features":
		return texts(t.ProcessorInfo.SupportedFeatures)
	case "nitro-enclaves-support":
		return one(string(t.NitroEnclavesSupport))
	case "vcpu-info.default-vcpus":
		return one(strconv.Itoa(int(aws.ToInt32(t.VCpuInfo.DefaultVCpus))))
	case "vcpu-info.default-cores":
		return one(strconv.Itoa(int(aws.ToInt32(t.VCpuInfo.DefaultCores))))
	case "memory-info.size-in-mib":
		return one(strconv.FormatInt(aws.ToInt64(t.MemoryInfo.SizeInMiB), 10))
	case "network-info.efa-supported":
		return boolValue(t.NetworkInfo.EfaSupported)
	case "network-info.ena-support":
		return one(string(t.NetworkInfo.EnaSupport))
	case "network-info.encryption-in-transit-supported":
		return boolValue(t.NetworkInfo.EncryptionInTransitSupported)
	case "ebs-info.ebs-optimized-support":
		return one(string(t.EbsInfo.EbsOptimizedSupport))
	default:
		return typeFlagFilter(t, name)
	}
}

func typeFlagFilter(t *ec2types.InstanceTypeInfo, name string) ([]string, bool) {
	switch name {
	case "bare-metal":
		return boolValue(t.BareMetal)
	case "burstable-performance-supported":
		return boolValue(t.BurstablePerformanceSupported)
	case "current-generation":
		return boolValue(t.CurrentGeneration)
	case "dedicated-hosts-supported":
		return boolValue(t.DedicatedHostsSupported)
	case "free-tier-eligible":
		return boolValue(t.FreeTierEligible)
	case "hibernation-supported":
		return boolValue(t.HibernationSupported)
	case "auto-recovery-supported":
		return boolValue(t.AutoRecoverySupported)
	case "instance-storage-supported":
		return boolValue(t.InstanceStorageSupported)
	default:
		return nil, false
	}
}

func (e *Emulator) describeInstanceTypeOfferings(_ *call, in *ec2.DescribeInstanceTypeOfferingsInput) (*ec2.DescribeInstanceTypeOfferingsOutput, error) {
	var found []ec2types.InstanceTypeOffering
	for _, o := range e.catalog.offers {
		for _, location := range e.locations(o, in.LocationType) {
			offering := ec2types.InstanceTypeOffering{
				InstanceType: o.info.InstanceType,
				Location:     aws.String(location),
				LocationType: in.LocationType,
			}
			if offering.LocationType == "" {
				offering.LocationType = ec2types.LocationTypeRegion
			}
			ok, err := matches(in.Filters, nil, func(name string) ([]string, bool) {
				switch name {
				case "instance-type":
					return one(o.name)
				case "location":
					return one(location)
				}
				return nil, false
			})
			if err != nil {
				return nil, err
			}
			if ok {
				found = append(found, offering)
			}
		}
	}
	items, next, err := page(found, in.MaxResults, in.NextToken, pageLimits{5, 1000, 1000})
	if err != nil {
		return nil, err
	}
	return &ec2.DescribeInstanceTypeOfferingsOutput{InstanceTypeOfferings: items, NextToken: next}, nil
}

// locations returns where a type is offered, as the location type names places.
func (e *Emulator) locations(o *offer, kind ec2types.LocationType) []string {
	var out []string
	for i, z := range e.catalog.zones {
		if !o.zones[i] {
			continue
		}
		switch kind {
		case ec2types.LocationTypeAvailabilityZone:
			out = append(out, z.name)
		case ec2types.LocationTypeAvailabilityZoneId:
			out = append(out, z.id)
		}
	}
	if kind == ec2types.LocationTypeRegion || kind == "" {
		out = append(out, e.opts.Region)
	}
	return out
}

func (e *Emulator) describeAvailabilityZones(_ *call, in *ec2.DescribeAvailabilityZonesInput) (*ec2.DescribeAvailabilityZonesOutput, error) {
	out := &ec2.DescribeAvailabilityZonesOutput{AvailabilityZones: []ec2types.AvailabilityZone{}}
	for _, name := range in.ZoneNames {
		if e.catalog.zoneIndex(name) < 0 {
			return nil, invalid("InvalidParameterValue", "Invalid availability zone: [%s]", name)
		}
	}
	for _, z := range e.catalog.zones {
		if !listed(in.ZoneNames, z.name) || !listed(in.ZoneIds, z.id) {
			continue
		}
		values := map[string]string{
			"region-name": e.opts.Region, "state": "available", "zone-id": z.id, "zone-name": z.name,
			"zone-type": "availability-zone", "opt-in-status": "opt-in-not-required", "group-name": e.opts.Region + "-zg-1",
		}
		ok, err := matches(in.Filters, nil, func(name string) ([]string, bool) {
			v, known := values[name]
			return []string{v}, known
		})
		if err != nil {
			return nil, err
		}
		if ok {
			out.AvailabilityZones = append(out.AvailabilityZones, ec2types.AvailabilityZone{
				GroupName: aws.String(values["group-name"]), NetworkBorderGroup: aws.String(e.opts.Region),
				OptInStatus: ec2types.AvailabilityZoneOptInStatusOptInNotRequired, RegionName: aws.String(e.opts.Region),
				State: ec2types.AvailabilityZoneStateAvailable, ZoneId: aws.String(z.id), ZoneName: aws.String(z.name),
				ZoneType: aws.String("availability-zone"),
			})
		}
	}
	return out, nil
}
