// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Tag keys that Karpenter's published IAM policy is built on; a drop-in has to use exactly these.
const (
	TagClusterPrefix = "kubernetes.io/cluster/" // + cluster name = "owned"
	TagClusterName   = "eks:eks-cluster-name"
	TagNodePool      = "karpenter.sh/nodepool"
	TagNodeClaim     = "karpenter.sh/nodeclaim"
	TagNodeClass     = "karpenter.k8s.aws/ec2nodeclass"
	TagName          = "Name"
	// TagLaunch is Slipway's own: the launch an instance came from, which is the claim's UID, or the launch group's id
	// when equal claims shared one call. A restarted launcher finds the instances of an interrupted call by it.
	TagLaunch = "slipway.sh/launch"
	// TagTemplate tells Slipway's launch templates from Karpenter's, whose names begin alike.
	TagTemplate = "slipway.sh/launch-template"
)

// Subnet is one subnet a node class resolved to.
type Subnet struct {
	ID            string
	Zone          string
	ZoneID        string
	FreeAddresses int32
}

// SecurityGroup is one security group a node class resolved to.
type SecurityGroup struct {
	ID   string
	Name string
}

// Image is one machine image a node class resolved to.
type Image struct {
	ID           string
	Name         string
	Created      time.Time
	Deprecated   bool
	Requirements []corev1.NodeSelectorRequirement // which instance types it boots on: arch, accelerators
}

// Template is a launch template as Slipway wants it. Equal templates have equal names: the name is
// "karpenter.k8s.aws/" and a digest of everything else, so making one twice is harmless.
type Template struct {
	Name            string
	ImageID         string
	UserData        string // plain text, not base64
	InstanceProfile string
	SecurityGroups  []string // group ids
	BlockDevices    []BlockDevice
	Metadata        MetadataOptions
	Monitoring      bool
	PublicIP        *bool
	Tags            map[string]string // of the launch template itself, and of network interfaces made from it
	// Spot templates also tag the spot request EC2 makes, which Karpenter's published IAM policy insists on; a template
	// that does so cannot launch on-demand instances.
	Spot bool
	// NetworkInterfaces, if any, replace the single default interface.
	NetworkInterfaces []NetworkInterface
	// EFAs is how many EFA interfaces an instance for pods that ask for them gets, one a network card; not looked at if
	// NetworkInterfaces are listed.
	EFAs int32
	// IPv6 gives the interfaces a primary IPv6 address, as nodes of an IPv6 cluster need.
	IPv6 bool
	// IPPrefixes are the prefixes of the interfaces, of the cluster's address family.
	IPPrefixes           int32
	ConnectionTracking   *ConnectionTracking
	NestedVirtualization string // enabled, disabled, or empty to leave it to EC2
	// Tenancy is default or dedicated; default if empty.
	Tenancy string
	// PlacementGroup is the group's id, Partition the number of one of its partitions, 0 for any; empty outside of groups.
	PlacementGroup string
	Partition      int32
	// Reservation is the capacity reservation instances run in; nil for none. As with Karpenter, instances for which no
	// reservation is named use none, not even an open one.
	Reservation *ReservationRef
}

// ReservationRef names a capacity reservation and says how instances are bought from it.
type ReservationRef struct {
	ID string
	// Block says that it is a capacity block.
	Block bool
	// Interruptible says that its owner may take the instances back.
	Interruptible bool
}

// BlockDevice is one block device mapping. Size in GiB, throughput in MiB/s; zero values are left to EC2.
type BlockDevice struct {
	DeviceName          string
	SizeGiB             int32
	VolumeType          string
	IOPS                int32
	Throughput          int32
	Encrypted           *bool
	KMSKeyID            string
	SnapshotID          string
	DeleteOnTermination *bool
	// InitializationRate is how fast blocks are fetched from the snapshot, MiB/s; 0 leaves it to EC2.
	InitializationRate int32
}

// NetworkInterface is one network interface besides or instead of the default one.
type NetworkInterface struct {
	Card    int32
	Device  int32
	EFAOnly bool
}

// ConnectionTracking are idle timeouts of tracked connections, in seconds; zero values are left to EC2.
type ConnectionTracking struct {
	TCPEstablished int32
	UDPStream      int32
	UDP            int32
}

// MetadataOptions are the instance metadata service settings, in EC2's own words.
type MetadataOptions struct {
	HTTPEndpoint            string
	HTTPProtocolIPv6        string
	HTTPPutResponseHopLimit int32
	HTTPTokens              string
}

// FleetRequest is one CreateFleet call of type instant.
type FleetRequest struct {
	// Token is the client token (at most 64 characters): the same token and parameters never launch twice.
	Token string
	// Count is how many instances are wanted; fewer may be launched.
	Count int32
	// CapacityType of all of them: spot, on-demand or reserved.
	CapacityType string
	// Block and Interruptible are the kind of all the reservations, for capacity type reserved only.
	Block, Interruptible bool
	// Prioritized makes EC2 go by the overrides' priorities before capacity and price (Karpenter's choice where a NodeOverlay
	// sets prices).
	Prioritized bool
	// Overrides are the acceptable (type, subnet, template) combinations, best first; at most 300 (EC2's limit).
	Overrides []FleetOverride
	// Tags of the instances, volumes and the fleet.
	Tags map[string]string
	// Context is EC2NodeClass.spec.context, empty if unset.
	Context string
}

// FleetOverride is one acceptable way to fulfil a fleet request.
type FleetOverride struct {
	TemplateName string
	InstanceType string
	SubnetID     string
	Zone         string
	// ImageID boots on the type's architecture.
	ImageID string
	// Priority is the price in US dollars an hour; lower is preferred where the strategy looks at it.
	Priority float64
	// ReservationID is the reservation the template names, for capacity type reserved only.
	ReservationID string
}

// FleetResult is what a fleet request brought: instances, and errors for what it did not bring. Both may be present.
type FleetResult struct {
	FleetID   string
	Instances []FleetInstance
	// Errors has one entry an offering that failed, each with its kind.
	Errors []*capacity.Error
}

// FleetInstance is one instance a fleet launched, with the override it came from.
type FleetInstance struct {
	ID           string
	InstanceType string
	Zone         string
	CapacityType string
	SubnetID     string
	ImageID      string
	// ReservationID is set for capacity type reserved only.
	ReservationID string
}

// Instance is an EC2 instance as DescribeInstances reports it.
type Instance struct {
	ID             string
	InstanceType   string
	Zone           string
	CapacityType   string // spot, on-demand or reserved
	State          string // pending, running, shutting-down, terminated, stopping, stopped
	PrivateDNSName string // the Node's name, empty until EC2 has assigned it
	ImageID        string
	SubnetID       string
	SecurityGroups []string
	LaunchTime     time.Time
	Tags           map[string]string
	// Reservation is the capacity reservation the instance was told to run in, nil for capacity types spot and on-demand. (An
	// instance that EC2 counts against an open reservation by itself is on-demand: it did not ask.)
	Reservation *ReservationRef
	Tenancy     string // default, dedicated or host
	// Partition is the number of the partition within its placement group, 0 if it has none.
	Partition int32
	EFAs      int32 // network interfaces with EFA
}

// ProviderID is the Node's spec.providerID for the instance: aws:///<zone>/<instance id>.
func (i Instance) ProviderID() string { return ProviderID(i.Zone, i.ID) }

// ProviderID returns aws:///<zone>/<instance id>.
func ProviderID(zone, id string) string { return "aws:///" + zone + "/" + id }
