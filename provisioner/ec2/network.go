// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
)

// Subnets returns the subnets any of the terms selects, those with most free
// addresses first. A term's fields are ANDed; the tag value * stands for any value.
func (c *Client) Subnets(ctx context.Context, terms []v1.SubnetSelectorTerm) ([]Subnet, error) {
	var ids []string
	var queries [][]ec2types.Filter
	for _, t := range terms {
		if t.ID != "" {
			ids = append(ids, t.ID)
		} else if len(t.Tags) > 0 {
			queries = append(queries, tagFilters(t.Tags))
		}
	}
	if len(ids) > 0 {
		queries = append(queries, []ec2types.Filter{filter("subnet-id", ids...)})
	}
	found := map[string]Subnet{}
	for _, q := range queries {
		pages := ec2.NewDescribeSubnetsPaginator(c.ec2, &ec2.DescribeSubnetsInput{Filters: q})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, wrap(err, "describing subnets")
			}
			for _, s := range page.Subnets {
				found[aws.ToString(s.SubnetId)] = Subnet{
					ID:            aws.ToString(s.SubnetId),
					Zone:          aws.ToString(s.AvailabilityZone),
					ZoneID:        aws.ToString(s.AvailabilityZoneId),
					FreeAddresses: aws.ToInt32(s.AvailableIpAddressCount),
				}
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Subnet) int {
		return cmp.Or(cmp.Compare(b.FreeAddresses, a.FreeAddresses), strings.Compare(a.ID, b.ID))
	}), nil
}

// SecurityGroups returns the groups any of the terms selects, sorted by id. A
// name is the group's name, not its Name tag.
func (c *Client) SecurityGroups(ctx context.Context, terms []v1.SecurityGroupSelectorTerm) ([]SecurityGroup, error) {
	var ids, names []string
	var queries [][]ec2types.Filter
	for _, t := range terms {
		switch {
		case t.ID != "":
			ids = append(ids, t.ID)
		case t.Name != "":
			names = append(names, t.Name)
		case len(t.Tags) > 0:
			queries = append(queries, tagFilters(t.Tags))
		}
	}
	if len(ids) > 0 {
		queries = append(queries, []ec2types.Filter{filter("group-id", ids...)})
	}
	if len(names) > 0 {
		queries = append(queries, []ec2types.Filter{filter("group-name", names...)})
	}
	found := map[string]SecurityGroup{}
	for _, q := range queries {
		pages := ec2.NewDescribeSecurityGroupsPaginator(c.ec2, &ec2.DescribeSecurityGroupsInput{Filters: q})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, wrap(err, "describing security groups")
			}
			for _, g := range page.SecurityGroups {
				found[aws.ToString(g.GroupId)] = SecurityGroup{ID: aws.ToString(g.GroupId), Name: aws.ToString(g.GroupName)}
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b SecurityGroup) int { return strings.Compare(a.ID, b.ID) }), nil
}

// tagFilters selects what has all the tags, in a fixed order.
func tagFilters(tags map[string]string) []ec2types.Filter {
	out := make([]ec2types.Filter, 0, len(tags))
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		if tags[k] == "*" {
			out = append(out, filter("tag-key", k))
		} else {
			out = append(out, filter("tag:"+k, tags[k]))
		}
	}
	return out
}
