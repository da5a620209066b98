// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// instance is one machine; Emulator.mu guards it.
type instance struct {
	launchSpec
	id, reservation string
	index           int // in its reservation
	address         netip.Addr
	dnsName         string
	launched        time.Time
	state           ec2types.InstanceStateName
	reason          string // why it is shutting down or terminated
	price           float64
	volumes         map[string]string // device name to volume id
	interfaceID     string
	spotRequest     string

	console   []string
	reserved  *reservation // whose capacity it uses, nil for none
	scheduled []scheduled
	impaired  map[string]time.Time // since when each failing status check fails

	joined    bool
	readyTime time.Duration
	kubelet   Kubelet            // where it joins
	stopJoin  context.CancelFunc // nil until the machine tries to join
	joinDone  chan struct{}
}

// Instance is what the emulator knows about an instance.
type Instance struct {
	ID, InstanceType, Zone, SubnetID, ImageID string
	// CapacityType is on-demand, spot, capacity-block or
	// interruptible-capacity-reservation; Price is USD an hour, fixed at launch.
	CapacityType string
	// ReservationID is that of the capacity reservation it is on, empty for none.
	ReservationID string
	Price         float64
	// State is EC2's: pending, running, stopping, stopped, shutting-down, terminated.
	State              string
	PrivateIP          string
	NodeName           string
	LaunchTemplateName string
	FleetID            string
	ClientToken        string
	Tags               map[string]string
	LaunchTime         time.Time
	// Joined says that its Node was registered.
	Joined bool
	// Console is what the machine has printed.
	Console string
}

// Instances returns all instances in the order of their launch, terminated ones
// included while they are visible.
func (e *Emulator) Instances() []Instance {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]Instance, 0, len(e.world.instanceList))
	for _, i := range e.world.instanceList {
		view := Instance{
			ID: i.id, InstanceType: i.offer.name, Zone: i.subnet.Zone, SubnetID: i.subnet.ID, ImageID: i.image.ID,
			CapacityType: i.capacityType, Price: i.price, State: string(i.state), PrivateIP: i.address.String(), NodeName: i.dnsName,
			FleetID: i.fleetID, ClientToken: i.token, Tags: tagMap(e.world.tags[i.id]), LaunchTime: i.launched, Joined: i.joined,
			Console: strings.Join(i.console, "\n"),
		}
		if i.template != nil {
			view.LaunchTemplateName = i.template.name
		}
		if i.reserved != nil {
			view.ReservationID = i.reserved.ID
		}
		out = append(out, view)
	}
	return out
}

// Terminate ends an instance as if somebody had done so in the console.
// It reports whether there is such an instance.
func (e *Emulator) Terminate(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := e.world.instances[id]
	if i != nil {
		e.shutDown(i, "Client.UserInitiatedShutdown: User initiated shutdown")
	}
	return i != nil
}

func stateCode(s ec2types.InstanceStateName) *int32 {
	switch s {
	case ec2types.InstanceStateNameRunning:
		return aws.Int32(16)
	case ec2types.InstanceStateNameShuttingDown:
		return aws.Int32(32)
	case ec2types.InstanceStateNameTerminated:
		return aws.Int32(48)
	case ec2types.InstanceStateNameStopping:
		return aws.Int32(64)
	case ec2types.InstanceStateNameStopped:
		return aws.Int32(80)
	default:
		return aws.Int32(0) // pending
	}
}

func sdkState(s ec2types.InstanceStateName) *ec2types.InstanceState {
	return &ec2types.InstanceState{Code: stateCode(s), Name: s}
}

// gone says that an instance no longer has a network or a type that runs.
func (i *instance) gone() bool { return i.state == ec2types.InstanceStateNameTerminated }

func (e *Emulator) sdkInstance(i *instance) ec2types.Instance {
	out := ec2types.Instance{
		InstanceId: aws.String(i.id), ImageId: aws.String(i.image.ID), InstanceType: i.offer.info.InstanceType,
		State: sdkState(i.state), LaunchTime: aws.Time(i.launched), AmiLaunchIndex: aws.Int32(int32(i.index)),
		Architecture: ec2types.ArchitectureValues(i.image.Arch), EnaSupport: aws.Bool(true), EbsOptimized: aws.Bool(false),
		Hypervisor: ec2types.HypervisorTypeXen, VirtualizationType: ec2types.VirtualizationTypeHvm,
		RootDeviceName: aws.String(i.image.Family.rootDevice()), RootDeviceType: ec2types.DeviceTypeEbs, PlatformDetails: aws.String(i.image.Family.platform()),
		Monitoring: &ec2types.Monitoring{State: ec2types.MonitoringStateDisabled}, ClientToken: aws.String(i.token),
		Placement: e.sdkPlacement(i), CapacityReservationSpecification: i.sdkReservationSpec(),
		MetadataOptions: i.metadata, CurrentInstanceBootMode: i.bootMode(),
		PrivateDnsName: aws.String(""), PublicDnsName: aws.String(""), Tags: e.world.shownTags(i.id),
		StateTransitionReason: aws.String(""), SecurityGroups: e.groupIdentifiers(i),
	}
	if i.image.Family == Windows {
		out.Platform = ec2types.PlatformValuesWindows
	}
	if i.capacityType != onDemand {
		out.InstanceLifecycle = ec2types.InstanceLifecycleType(i.capacityType)
	}
	if i.capacityType == spot {
		out.SpotInstanceRequestId = aws.String(i.spotRequest)
	}
	if i.reserved != nil {
		out.CapacityReservationId = aws.String(i.reserved.ID)
	}
	if profile := e.world.profiles[i.profile]; profile != nil {
		out.IamInstanceProfile = &ec2types.IamInstanceProfile{Arn: profile.Arn, Id: profile.InstanceProfileId}
	}
	if i.reason != "" {
		code, message, _ := strings.Cut(i.reason, ": ")
		out.StateTransitionReason = aws.String(message)
		out.StateReason = &ec2types.StateReason{Code: aws.String(code), Message: aws.String(i.reason)}
	}
	if i.gone() {
		return out
	}
	out.PrivateDnsName, out.PrivateIpAddress = aws.String(i.dnsName), aws.String(i.address.String())
	out.SubnetId, out.VpcId, out.SourceDestCheck = aws.String(i.subnet.ID), aws.String(vpcID), aws.Bool(true)
	out.NetworkInterfaces = []ec2types.InstanceNetworkInterface{e.sdkInterface(i)}
	for _, device := range slices.Sorted(maps.Keys(i.volumes)) {
		out.BlockDeviceMappings = append(out.BlockDeviceMappings, ec2types.InstanceBlockDeviceMapping{
			DeviceName: aws.String(device),
			Ebs: &ec2types.EbsInstanceBlockDevice{
				VolumeId: aws.String(i.volumes[device]), Status: ec2types.AttachmentStatusAttached,
				AttachTime: aws.Time(i.launched), DeleteOnTermination: aws.Bool(true),
			},
		})
	}
	return out
}

func (e *Emulator) groupIdentifiers(i *instance) []ec2types.GroupIdentifier {
	out := []ec2types.GroupIdentifier{}
	for _, g := range e.world.groups {
		if slices.Contains(i.groups, g.ID) {
			out = append(out, ec2types.GroupIdentifier{GroupId: aws.String(g.ID), GroupName: aws.String(g.Name)})
		}
	}
	return out
}

func (e *Emulator) sdkInterface(i *instance) ec2types.InstanceNetworkInterface {
	return ec2types.InstanceNetworkInterface{
		NetworkInterfaceId: aws.String(i.interfaceID), SubnetId: aws.String(i.subnet.ID), VpcId: aws.String(vpcID),
		PrivateIpAddress: aws.String(i.address.String()), PrivateDnsName: aws.String(i.dnsName), OwnerId: aws.String(e.opts.AccountID),
		Description: aws.String(""), MacAddress: aws.String(i.macAddress()), SourceDestCheck: aws.Bool(true), Ipv6Addresses: []ec2types.InstanceIpv6Address{},
		InterfaceType: aws.String("interface"), Status: ec2types.NetworkInterfaceStatusInUse, Groups: e.groupIdentifiers(i),
		Attachment: &ec2types.InstanceNetworkInterfaceAttachment{
			AttachmentId: aws.String("eni-attach" + strings.TrimPrefix(i.interfaceID, "eni")),
			DeviceIndex:  aws.Int32(0), NetworkCardIndex: aws.Int32(0), DeleteOnTermination: aws.Bool(true),
			Status: ec2types.AttachmentStatusAttached, AttachTime: aws.Time(i.launched),
		},
		PrivateIpAddresses: []ec2types.InstancePrivateIpAddress{{
			Primary: aws.Bool(true), PrivateIpAddress: aws.String(i.address.String()), PrivateDnsName: aws.String(i.dnsName),
		}},
	}
}

// macAddress is a locally administered one that belongs to the address, as EC2's
// begin with 02, 06, 0a, ...
func (i *instance) macAddress() string {
	a := i.address.As4()
	return fmt.Sprintf("02:a1:%02x:%02x:%02x:%02x", a[0], a[1], a[2], a[3])
}

// bootMode is how the machine has booted.
func (i *instance) bootMode() ec2types.InstanceBootModeValues {
	if slices.Contains(i.offer.info.SupportedBootModes, ec2types.BootModeTypeUefi) {
		return ec2types.InstanceBootModeValuesUefi
	}
	return ec2types.InstanceBootModeValuesLegacyBios
}
