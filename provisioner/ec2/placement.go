// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// AnnotationPlacementGroup is on an EC2NodeClass with a placement group selector: what the selector resolves to, as JSON of
// a [PlacementGroup]. (Karpenter v1.14 has no field for it in the status.) The controller writes it; whoever plans and
// launches reads it.
const AnnotationPlacementGroup = "slipway.sh/placement-group"

// PlacementGroup is a placement group as EC2 reports it.
type PlacementGroup struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// Strategy is cluster, partition or spread.
	Strategy string `json:"strategy"`
	// Partitions is how many partitions the group has, 0 unless the strategy is partition.
	Partitions int32 `json:"partitions,omitempty"`
}

// PlacementGroup returns the placement group the selector names. The error is of kind NotFound if there is none that can be
// used.
func (c *Client) PlacementGroup(ctx context.Context, s *v1.PlacementGroupSelector) (PlacementGroup, error) {
	in := &ec2.DescribePlacementGroupsInput{Filters: []ec2types.Filter{filter("state", "available")}}
	id, name := deref(s.ID), deref(s.Name)
	if id != "" {
		in.GroupIds = []string{id}
	} else {
		in.GroupNames = []string{name}
	}
	out, err := c.ec2.DescribePlacementGroups(ctx, in)
	if err = wrap(err, "describing placement group %q", cmp.Or(id, name)); err != nil {
		// EC2 reports an unknown name as InvalidPlacementGroup.Unknown and an id of another form as malformed.
		if codeOf(err) == "InvalidPlacementGroup.Unknown" || codeOf(err) == "InvalidPlacementGroupId.Unknown" {
			return PlacementGroup{}, &capacity.Error{Kind: capacity.NotFound, Code: codeOf(err), Err: err}
		}
		return PlacementGroup{}, err
	}
	if len(out.PlacementGroups) == 0 {
		return PlacementGroup{}, &capacity.Error{Kind: capacity.NotFound, Err: fmt.Errorf("there is no placement group %q in state available", cmp.Or(id, name))}
	}
	g := out.PlacementGroups[0]
	return PlacementGroup{
		ID: aws.ToString(g.GroupId), Name: aws.ToString(g.GroupName),
		Strategy: string(g.Strategy), Partitions: aws.ToInt32(g.PartitionCount),
	}, nil
}

// PlacementGroupOf returns the placement group of the class, nil if it has none or it is not resolved yet.
func PlacementGroupOf(class *v1.EC2NodeClass) *PlacementGroup {
	text, ok := class.Annotations[AnnotationPlacementGroup]
	if class.Spec.PlacementGroupSelector == nil || !ok {
		return nil
	}
	g := &PlacementGroup{}
	if err := json.Unmarshal([]byte(text), g); err != nil || g.ID == "" {
		return nil
	}
	return g
}
