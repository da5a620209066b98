// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"cmp"
	"encoding/base64"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// templateData is the template in EC2's words.
func templateData(t Template) *ec2types.RequestLaunchTemplateData {
	d := &ec2types.RequestLaunchTemplateData{
		ImageId:           optional(t.ImageID),
		Monitoring:        &ec2types.LaunchTemplatesMonitoringRequest{Enabled: aws.Bool(t.Monitoring)},
		NetworkInterfaces: interfaces(t),
		EnclaveOptions:    &ec2types.LaunchTemplateEnclaveOptionsRequest{Enabled: aws.Bool(false)},
		Placement:         placement(t),
		UserData:          optional(base64.StdEncoding.EncodeToString([]byte(t.UserData))),
		MetadataOptions: &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{
			HttpEndpoint:         ec2types.LaunchTemplateInstanceMetadataEndpointState(t.Metadata.HTTPEndpoint),
			HttpProtocolIpv6:     ec2types.LaunchTemplateInstanceMetadataProtocolIpv6(t.Metadata.HTTPProtocolIPv6),
			HttpTokens:           ec2types.LaunchTemplateHttpTokensState(t.Metadata.HTTPTokens),
			InstanceMetadataTags: ec2types.LaunchTemplateInstanceMetadataTagsStateDisabled,
		},
	}
	if n := t.Metadata.HTTPPutResponseHopLimit; n > 0 {
		d.MetadataOptions.HttpPutResponseHopLimit = aws.Int32(n)
	}
	if t.InstanceProfile != "" {
		d.IamInstanceProfile = &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String(t.InstanceProfile)}
	}
	d.CapacityReservationSpecification, d.InstanceMarketOptions = reservation(t.Reservation)
	if t.NestedVirtualization != "" {
		d.CpuOptions = &ec2types.LaunchTemplateCpuOptionsRequest{
			NestedVirtualization: ec2types.NestedVirtualizationSpecification(t.NestedVirtualization),
		}
	}
	for _, b := range t.BlockDevices {
		d.BlockDeviceMappings = append(d.BlockDeviceMappings, blockDevice(b))
	}
	kinds := []ec2types.ResourceType{ec2types.ResourceTypeNetworkInterface}
	if t.Spot {
		kinds = append(kinds, ec2types.ResourceTypeSpotInstancesRequest)
	}
	if len(t.Tags) > 0 {
		for _, k := range kinds {
			d.TagSpecifications = append(d.TagSpecifications, ec2types.LaunchTemplateTagSpecificationRequest{ResourceType: k, Tags: tags(t.Tags)})
		}
	}
	return d
}

func placement(t Template) *ec2types.LaunchTemplatePlacementRequest {
	return &ec2types.LaunchTemplatePlacementRequest{
		Tenancy:         ec2types.Tenancy(cmp.Or(t.Tenancy, string(ec2types.TenancyDefault))),
		GroupId:         optional(t.PlacementGroup),
		PartitionNumber: optional(t.Partition),
	}
}

// reservation is the part of a template that ties instances to a reservation, or keeps them off all.
func reservation(r *ReservationRef) (*ec2types.LaunchTemplateCapacityReservationSpecificationRequest, *ec2types.LaunchTemplateInstanceMarketOptionsRequest) {
	if r == nil {
		return &ec2types.LaunchTemplateCapacityReservationSpecificationRequest{
			CapacityReservationPreference: ec2types.CapacityReservationPreferenceNone,
		}, nil
	}
	spec := &ec2types.LaunchTemplateCapacityReservationSpecificationRequest{
		CapacityReservationPreference: ec2types.CapacityReservationPreferenceCapacityReservationsOnly,
		CapacityReservationTarget:     &ec2types.CapacityReservationTarget{CapacityReservationId: aws.String(r.ID)},
	}
	switch {
	case r.Block:
		return spec, &ec2types.LaunchTemplateInstanceMarketOptionsRequest{MarketType: ec2types.MarketTypeCapacityBlock}
	case r.Interruptible:
		return spec, &ec2types.LaunchTemplateInstanceMarketOptionsRequest{MarketType: ec2types.MarketTypeInterruptibleCapacityReservation}
	}
	return spec, nil
}

func blockDevice(b BlockDevice) ec2types.LaunchTemplateBlockDeviceMappingRequest {
	return ec2types.LaunchTemplateBlockDeviceMappingRequest{
		DeviceName: aws.String(b.DeviceName),
		Ebs: &ec2types.LaunchTemplateEbsBlockDeviceRequest{
			VolumeSize:               optional(b.SizeGiB),
			VolumeType:               ec2types.VolumeType(b.VolumeType),
			Iops:                     optional(b.IOPS),
			Throughput:               optional(b.Throughput),
			Encrypted:                b.Encrypted,
			KmsKeyId:                 optional(b.KMSKeyID),
			SnapshotId:               optional(b.SnapshotID),
			DeleteOnTermination:      b.DeleteOnTermination,
			VolumeInitializationRate: optional(b.InitializationRate),
		},
	}
}

// interfaces are the network interfaces of a template: those it lists, else its EFA interfaces, else one. There is always
// one, because some settings exist on interfaces only, and groups may then be named nowhere else.
func interfaces(t Template) []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
	var out []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest
	switch {
	case len(t.NetworkInterfaces) > 0:
		for _, n := range t.NetworkInterfaces {
			kind := ec2types.NetworkInterfaceTypeInterface
			if n.EFAOnly {
				kind = ec2types.NetworkInterfaceTypeEfaOnly
			}
			out = append(out, t.networkInterface(n, kind))
		}
	case t.EFAs > 0:
		// The first card's interface is device 0, the others' are device 1: so only the first has the default route.
		for card := range t.EFAs {
			out = append(out, t.networkInterface(NetworkInterface{Card: card, Device: min(card, 1)}, ec2types.NetworkInterfaceTypeEfa))
		}
	default:
		out = append(out, t.networkInterface(NetworkInterface{}, ec2types.NetworkInterfaceTypeInterface))
	}
	return out
}

func (t Template) networkInterface(n NetworkInterface, kind ec2types.NetworkInterfaceType) ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
	i := ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{
		NetworkCardIndex: aws.Int32(n.Card),
		DeviceIndex:      aws.Int32(n.Device),
		Groups:           t.SecurityGroups,
		InterfaceType:    aws.String(string(kind)),
	}
	if kind == ec2types.NetworkInterfaceTypeEfaOnly {
		return i // has no addresses, and EC2 refuses whatever is about them
	}
	if ct := t.ConnectionTracking; ct != nil {
		i.ConnectionTrackingSpecification = &ec2types.ConnectionTrackingSpecificationRequest{
			TcpEstablishedTimeout: optional(ct.TCPEstablished), UdpStreamTimeout: optional(ct.UDPStream), UdpTimeout: optional(ct.UDP),
		}
	}
	i.AssociatePublicIpAddress = t.PublicIP
	if t.IPv6 {
		i.PrimaryIpv6, i.Ipv6AddressCount, i.Ipv6PrefixCount = aws.Bool(true), aws.Int32(1), optional(t.IPPrefixes)
	} else {
		i.Ipv4PrefixCount = optional(t.IPPrefixes)
	}
	return i
}
