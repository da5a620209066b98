// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func (e *Emulator) describeSubnets(_ *call, in *ec2.DescribeSubnetsInput) (*ec2.DescribeSubnetsOutput, error) {
	if unknown := unknownIDs(in.SubnetIds, e.world.subnets); len(unknown) > 0 {
		return nil, invalid("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", unknown[0])
	}
	var found []ec2types.Subnet
	for _, s := range e.world.subnetList {
		if !listed(in.SubnetIds, s.ID) {
			continue
		}
		zoneID := e.catalog.zoneIDOf(s.Zone)
		tags := e.world.tags[s.ID]
		values := map[string]string{
			"subnet-id": s.ID, "vpc-id": vpcID, "state": "available", "availability-zone": s.Zone, "availabilityZone": s.Zone,
			"availability-zone-id": zoneID, "cidr-block": s.CIDR, "cidrBlock": s.CIDR, "cidr": s.CIDR, "default-for-az": "false",
			"available-ip-address-count": strconv.Itoa(s.free), "owner-id": e.opts.AccountID, "map-public-ip-on-launch": "false",
		}
		ok, err := matches(in.Filters, tags, func(name string) ([]string, bool) {
			v, known := values[name]
			return []string{v}, known
		})
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, ec2types.Subnet{
				SubnetId: aws.String(s.ID), VpcId: aws.String(vpcID), State: ec2types.SubnetStateAvailable,
				AvailabilityZone: aws.String(s.Zone), AvailabilityZoneId: aws.String(zoneID), CidrBlock: aws.String(s.CIDR),
				AvailableIpAddressCount: aws.Int32(int32(s.free)), OwnerId: aws.String(e.opts.AccountID), Tags: tags,
				Ipv6Native: aws.Bool(false),
				PrivateDnsNameOptionsOnLaunch: &ec2types.PrivateDnsNameOptionsOnLaunch{
					HostnameType: ec2types.HostnameTypeIpName, EnableResourceNameDnsARecord: aws.Bool(false), EnableResourceNameDnsAAAARecord: aws.Bool(false),
				},
				DefaultForAz: aws.Bool(false), MapPublicIpOnLaunch: aws.Bool(false), AssignIpv6AddressOnCreation: aws.Bool(false),
				SubnetArn: aws.String(e.arn("ec2", "subnet/"+s.ID)),
			})
		}
	}
	items, next, err := page(found, in.MaxResults, in.NextToken, pageLimits{5, 1000, 1000})
	if err != nil {
		return nil, err
	}
	return &ec2.DescribeSubnetsOutput{Subnets: items, NextToken: next}, nil
}

func (e *Emulator) describeSecurityGroups(_ *call, in *ec2.DescribeSecurityGroupsInput) (*ec2.DescribeSecurityGroupsOutput, error) {
	for _, id := range in.GroupIds {
		if !slices.ContainsFunc(e.world.groups, func(g SecurityGroup) bool { return g.ID == id }) {
			return nil, invalid("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
		}
	}
	var found []ec2types.SecurityGroup
	for _, g := range e.world.groups {
		if !listed(in.GroupIds, g.ID) || !listed(in.GroupNames, g.Name) {
			continue
		}
		tags := e.world.tags[g.ID]
		values := map[string]string{"group-id": g.ID, "group-name": g.Name, "vpc-id": vpcID, "owner-id": e.opts.AccountID, "description": g.Name}
		ok, err := matches(in.Filters, tags, func(name string) ([]string, bool) {
			v, known := values[name]
			return []string{v}, known
		})
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, ec2types.SecurityGroup{
				GroupId: aws.String(g.ID), GroupName: aws.String(g.Name), Description: aws.String(g.Name),
				VpcId: aws.String(vpcID), OwnerId: aws.String(e.opts.AccountID), Tags: tags,
				IpPermissions: []ec2types.IpPermission{}, IpPermissionsEgress: []ec2types.IpPermission{{
					IpProtocol: aws.String("-1"), IpRanges: []ec2types.IpRange{{CidrIp: aws.String("0.0.0.0/0")}},
				}},
				SecurityGroupArn: aws.String(e.arn("ec2", "security-group/"+g.ID)),
			})
		}
	}
	items, next, err := page(found, in.MaxResults, in.NextToken, pageLimits{5, 1000, 1000})
	if err != nil {
		return nil, err
	}
	return &ec2.DescribeSecurityGroupsOutput{SecurityGroups: items, NextToken: next}, nil
}

// arn names a regional resource of the account.
func (e *Emulator) arn(service, resource string) string {
	return "arn:aws:" + service + ":" + e.opts.Region + ":" + e.opts.AccountID + ":" + resource
}
