// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/slipway-sh/slipway/test/ec2emu/data"
)

// Options configures an emulator. The zero value is an account in us-east-1 with
// one VPC, a subnet in each of the first three zones, two security groups and
// the EKS cluster "demo".
type Options struct {
	// Addr is the address to listen on, by default a free port of 127.0.0.1.
	Addr string
	// Seed decides every draw: identifiers, spot prices, capacity depth, delays.
	Seed uint64
	// Region is us-east-1 by default. Prices are those of us-east-1 everywhere.
	Region string
	// Zones of the region, by default those EC2 has. A zone that the recorded
	// catalogue does not know offers a seeded 92 % of the region's types.
	Zones []string
	// AccountID is 12 digits, 111122223333 by default.
	AccountID string

	// ClusterName, KubernetesVersion (1.37), ClusterEndpoint, ClusterCA (PEM)
	// and ServiceCIDR (10.100.0.0/16) are those of the one EKS cluster. While
	// endpoint and CA are empty they are not compared with user data; SetCluster
	// fills them in later.
	ClusterName, KubernetesVersion, ClusterEndpoint string
	// ClusterAliases are other names under which EKS knows the cluster: for clients that are not to find each other's instances.
	ClusterAliases []string
	ClusterCA      []byte
	ServiceCIDR    string
	// InterruptionQueue is the name of the account's SQS queue, by default that of
	// the cluster. What EventBridge would send there about instances is sent.
	InterruptionQueue string

	// Subnets, SecurityGroups, Images and Roles are what the account has. Nil
	// means the default; Images and Roles come in addition to the defaults.
	Subnets        []Subnet
	SecurityGroups []SecurityGroup
	Images         []Image
	Roles          []string
	// Parameters are SSM parameters in addition to those of the images.
	Parameters map[string]string

	// Clock is the real one by default.
	Clock clock.Clock
	// Speed is how many times faster than real what takes EC2 minutes and hours
	// passes: boot, termination, notices of interruption, spot price periods, how
	// long terminated instances stay. 0 means 1. Times on the wire stay the
	// Clock's, and the answers' latency, token buckets and SQS time-outs, which
	// clients set their own clocks by, real.
	Speed float64
	// BootScale multiplies every delay of a machine: boot, running, terminated.
	// 0 means 1; InstantBoot means no delay at all.
	BootScale   float64
	InstantBoot bool
	// NeverRegisters is the fraction of machines that boot but never join, 0..1.
	NeverRegisters float64
	// LaunchLatency multiplies the drawn time CreateFleet and RunInstances take
	// to answer (the effect comes first). 0 means they answer at once.
	LaunchLatency float64
	// TerminatedFor is how long a terminated instance stays visible, 1 h by
	// default as in EC2.
	TerminatedFor time.Duration
	// Throttle turns on EC2's request token buckets.
	Throttle bool
	// Hook is called after each request's effect and before its answer.
	Hook Hook
	// RequestLog is how many requests Requests remembers, 100,000 by default.
	RequestLog int
}

// Subnet is a subnet of the account's VPC.
type Subnet struct {
	ID, Zone, CIDR string
	Tags           map[string]string
	// FreeAddresses is how many instances fit, by default all of CIDR but the
	// five addresses EC2 keeps.
	FreeAddresses int
}

// SecurityGroup is a security group of the account's VPC.
type SecurityGroup struct {
	ID, Name string
	Tags     map[string]string
}

// Family says what software an image has: its boot times and its user data.
type Family string

// Families that machines boot from.
const (
	AL2023       Family = "AL2023"
	Bottlerocket Family = "Bottlerocket"
	AL2          Family = "AL2"
	Windows      Family = "Windows"
	// Custom machines read a NodeConfig as AL2023 and boot faster.
	Custom Family = "Custom"
)

// Image is an AMI.
type Image struct {
	ID, Name string
	// Arch is x86_64 or arm64.
	Arch   string
	Family Family
	// OwnerID is the account by default; OwnerAlias is "amazon" for public ones.
	OwnerID, OwnerAlias string
	Tags                map[string]string
	Created, Deprecated time.Time
	// Parameters are the SSM parameters whose value is this image's ID.
	Parameters []string
}

const (
	defaultRegion  = "us-east-1"
	vpcID          = "vpc-0a1b2c3d4e5f60718"
	vpcCIDR        = "10.0.0.0/16"
	defaultSubnets = 3
	// reservedAddresses are the first four and the last address of a subnet.
	reservedAddresses = 5
)

// complete fills in defaults; the error names the field that makes no sense.
func (o *Options) complete(facts *data.Facts) error {
	orDefault(&o.Addr, "127.0.0.1:0")
	orDefault(&o.Region, defaultRegion)
	orDefault(&o.AccountID, "111122223333")
	orDefault(&o.ClusterName, "demo")
	orDefault(&o.InterruptionQueue, o.ClusterName)
	orDefault(&o.KubernetesVersion, "1.37")
	orDefault(&o.ServiceCIDR, "10.100.0.0/16")
	orDefault(&o.TerminatedFor, time.Hour)
	orDefault(&o.BootScale, 1)
	orDefault(&o.Speed, 1)
	orDefault(&o.RequestLog, 100_000)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.BootScale < 0 || o.Speed < 0 || o.LaunchLatency < 0 || o.NeverRegisters < 0 || o.NeverRegisters > 1 {
		return fmt.Errorf("checking options: a scale or fraction is out of range")
	}
	if o.Zones == nil {
		o.Zones = facts.Offerings[o.Region].Zones
	}
	if len(o.Zones) == 0 || len(o.Zones) > 16 {
		return fmt.Errorf("checking options: region %q needs 1 to 16 Zones", o.Region)
	}
	if o.Subnets == nil {
		o.Subnets = o.defaultSubnets()
	}
	if o.SecurityGroups == nil {
		o.SecurityGroups = []SecurityGroup{
			{ID: "sg-0c0ffee0000000001", Name: "eks-cluster-sg-" + o.ClusterName, Tags: o.discoveryTags("cluster")},
			{ID: "sg-0c0ffee0000000002", Name: o.ClusterName + "-node", Tags: o.discoveryTags("node")},
		}
	}
	o.Roles = append([]string{"KarpenterNodeRole-" + o.ClusterName}, o.Roles...)
	return o.checkSubnets()
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (o *Options) defaultSubnets() []Subnet {
	var subnets []Subnet
	for i, zone := range o.Zones[:min(defaultSubnets, len(o.Zones))] {
		tags := o.discoveryTags("private-" + zone)
		tags["kubernetes.io/role/internal-elb"] = "1"
		subnets = append(subnets, Subnet{
			ID:   fmt.Sprintf("subnet-0c0ffee00000000%02d", i+1),
			Zone: zone,
			CIDR: fmt.Sprintf("10.0.%d.0/19", i*32),
			Tags: tags,
		})
	}
	return subnets
}

func (o *Options) discoveryTags(name string) map[string]string {
	return map[string]string{"karpenter.sh/discovery": o.ClusterName, "Name": o.ClusterName + "-" + name}
}

func (o *Options) checkSubnets() error {
	for i := range o.Subnets {
		s := &o.Subnets[i]
		prefix, err := netip.ParsePrefix(s.CIDR)
		if err != nil {
			return fmt.Errorf("checking options: subnet %q: %w", s.ID, err)
		}
		if !prefix.Addr().Is4() || prefix.Bits() < 16 || prefix.Bits() > 28 {
			return fmt.Errorf("checking options: subnet %q: CIDR %q is not an IPv4 /16 to /28", s.ID, s.CIDR)
		}
		if !slices.Contains(o.Zones, s.Zone) {
			return fmt.Errorf("checking options: subnet %q is in unknown zone %q", s.ID, s.Zone)
		}
		if s.FreeAddresses == 0 {
			s.FreeAddresses = 1<<(32-prefix.Bits()) - reservedAddresses
		}
	}
	return nil
}
