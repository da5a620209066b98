// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// resourceKind names a taggable resource by the prefix of its id.
func resourceKind(id string) ec2types.ResourceType {
	prefix, _, _ := strings.Cut(id, "-")
	switch prefix {
	case "i":
		return ec2types.ResourceTypeInstance
	case "lt":
		return ec2types.ResourceTypeLaunchTemplate
	case "subnet":
		return ec2types.ResourceTypeSubnet
	case "sg":
		return ec2types.ResourceTypeSecurityGroup
	case "ami":
		return ec2types.ResourceTypeImage
	case "vol":
		return ec2types.ResourceTypeVolume
	case "eni":
		return ec2types.ResourceTypeNetworkInterface
	case "sir":
		return ec2types.ResourceTypeSpotInstancesRequest
	case "cr":
		return ec2types.ResourceTypeCapacityReservation
	case "pg":
		return ec2types.ResourceTypePlacementGroup
	case "fleet":
		return ec2types.ResourceTypeFleet
	default:
		return ""
	}
}

// checkResources reports the first id that nothing has.
func (w *world) checkResources(ids []string) error {
	if len(ids) == 0 {
		return missing("ResourceId")
	}
	for _, id := range ids {
		if _, ok := w.tags[id]; ok && w.seen(id) {
			continue
		}
		switch resourceKind(id) {
		case ec2types.ResourceTypeInstance:
			return w.checkIDs([]string{id})
		case ec2types.ResourceTypeLaunchTemplate:
			return invalid(templateIDMissing, "The launch template ID '%s' does not exist", id)
		case ec2types.ResourceTypeSubnet:
			return invalid("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", id)
		case ec2types.ResourceTypeSecurityGroup:
			return invalid("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
		case ec2types.ResourceTypeVolume:
			return invalid("InvalidVolume.NotFound", "The volume '%s' does not exist.", id)
		default:
			return invalid("InvalidID", "The ID '%s' is not valid", id)
		}
	}
	return nil
}

func (e *Emulator) createTags(_ *call, in *ec2.CreateTagsInput) (*ec2.CreateTagsOutput, error) {
	if err := e.world.checkResources(in.Resources); err != nil {
		return nil, err
	}
	if len(in.Tags) == 0 {
		return nil, missing("Tag")
	}
	if err := checkTags(in.Tags); err != nil {
		return nil, err
	}
	for _, id := range in.Resources {
		e.world.retag(id, mergeTags(e.world.tags[id], in.Tags))
	}
	return &ec2.CreateTagsOutput{}, nil
}

func (e *Emulator) deleteTags(_ *call, in *ec2.DeleteTagsInput) (*ec2.DeleteTagsOutput, error) {
	if err := e.world.checkResources(in.Resources); err != nil {
		return nil, err
	}
	for _, id := range in.Resources {
		e.world.retag(id, slices.DeleteFunc(slices.Clone(e.world.tags[id]), func(t ec2types.Tag) bool {
			if strings.HasPrefix(aws.ToString(t.Key), "aws:") {
				return false
			}
			return len(in.Tags) == 0 || slices.ContainsFunc(in.Tags, func(d ec2types.Tag) bool {
				// A tag without a value is deleted whatever its value is.
				return aws.ToString(d.Key) == aws.ToString(t.Key) && (d.Value == nil || *d.Value == aws.ToString(t.Value))
			})
		}))
	}
	return &ec2.DeleteTagsOutput{}, nil
}

func (e *Emulator) describeTags(_ *call, in *ec2.DescribeTagsInput) (*ec2.DescribeTagsOutput, error) {
	var found []ec2types.TagDescription
	for _, id := range slices.Sorted(maps.Keys(e.world.tags)) {
		for _, t := range e.world.tags[id] {
			ok, err := matches(in.Filters, []ec2types.Tag{t}, func(name string) ([]string, bool) {
				switch name {
				case "resource-id":
					return one(id)
				case "resource-type":
					return one(string(resourceKind(id)))
				case "key":
					return one(aws.ToString(t.Key))
				case "value":
					return one(aws.ToString(t.Value))
				}
				return nil, false
			})
			if err != nil {
				return nil, err
			}
			if ok {
				found = append(found, ec2types.TagDescription{Key: t.Key, Value: t.Value, ResourceId: aws.String(id), ResourceType: resourceKind(id)})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b ec2types.TagDescription) int { return cmp.Compare(*a.Key, *b.Key) })
	items, next, err := page(found, in.MaxResults, in.NextToken, pageLimits{5, 1000, 1000})
	if err != nil {
		return nil, err
	}
	return &ec2.DescribeTagsOutput{Tags: items, NextToken: next}, nil
}
