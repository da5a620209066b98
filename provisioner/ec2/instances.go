// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

const (
	// batchIDs is how many instances one call is about, half of what EC2 accepts.
	batchIDs = 500
	// batchValues is EC2's limit on the values of one filter.
	batchValues = 200
)

// Describe returns the instances of the given ids, in no particular order. If EC2
// does not know some of them (yet: a new id takes a moment to be known everywhere),
// it returns the others and an error of kind NotFound that lists the missing.
func (c *Client) Describe(ctx context.Context, ids []string) ([]Instance, error) {
	// By filter rather than by parameter: one unknown id would fail the whole call, and a call without a filter draws on a
	// smaller request budget.
	out, err := c.describeByFilter(ctx, "instance-id", ids)
	if err != nil {
		return nil, err
	}
	if missing := missingIDs(ids, out); len(missing) > 0 {
		return out, &capacity.Error{Kind: capacity.NotFound, Code: codeInstanceGone, Err: fmt.Errorf("describing instances: EC2 does not know %q", missing)}
	}
	return out, nil
}

func missingIDs(ids []string, found []Instance) []string {
	known := make(map[string]bool, len(found))
	for _, i := range found {
		known[i.ID] = true
	}
	var out []string
	for _, id := range ids {
		if !known[id] {
			out = append(out, id)
		}
	}
	return out
}

// DescribeByTag returns the instances that carry the tag with one of the values, those that were terminated lately included.
func (c *Client) DescribeByTag(ctx context.Context, key string, values []string) ([]Instance, error) {
	return c.describeByFilter(ctx, "tag:"+key, values)
}

func (c *Client) describeByFilter(ctx context.Context, name string, values []string) ([]Instance, error) {
	var out []Instance
	for batch := range slices.Chunk(values, batchValues) {
		found, err := c.describe(ctx, &ec2.DescribeInstancesInput{
			Filters: []ec2types.Filter{filter(name, batch...)}, MaxResults: aws.Int32(1000),
		})
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// ClusterInstances returns every instance bought for the cluster, by Slipway or Karpenter, that is not terminated.
func (c *Client) ClusterInstances(ctx context.Context) ([]Instance, error) {
	return c.describe(ctx, &ec2.DescribeInstancesInput{
		Filters: []ec2types.Filter{
			filter("tag:"+TagClusterPrefix+c.opts.ClusterName, "owned"),
			filter("tag-key", TagNodePool),
			filter("instance-state-name", "pending", "running", "shutting-down", "stopping", "stopped"),
		},
		MaxResults: aws.Int32(1000),
	})
}

func (c *Client) describe(ctx context.Context, in *ec2.DescribeInstancesInput) ([]Instance, error) {
	var out []Instance
	pages := ec2.NewDescribeInstancesPaginator(c.ec2, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, wrap(err, "describing instances")
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				out = append(out, newInstance(i))
			}
		}
	}
	return out, nil
}

func newInstance(i ec2types.Instance) Instance {
	out := Instance{
		ID:             aws.ToString(i.InstanceId),
		InstanceType:   string(i.InstanceType),
		CapacityType:   karpv1.CapacityTypeOnDemand,
		PrivateDNSName: aws.ToString(i.PrivateDnsName),
		ImageID:        aws.ToString(i.ImageId),
		SubnetID:       aws.ToString(i.SubnetId),
		LaunchTime:     aws.ToTime(i.LaunchTime),
		Tags:           tagMap(i.Tags),
	}
	switch s := i.CapacityReservationSpecification; {
	case i.InstanceLifecycle == ec2types.InstanceLifecycleTypeSpot:
		out.CapacityType = karpv1.CapacityTypeSpot
	case i.CapacityReservationId != nil && s != nil && s.CapacityReservationPreference == ec2types.CapacityReservationPreferenceCapacityReservationsOnly:
		out.CapacityType = karpv1.CapacityTypeReserved
		out.Reservation = &ReservationRef{
			ID:            *i.CapacityReservationId,
			Block:         i.InstanceLifecycle == ec2types.InstanceLifecycleTypeCapacityBlock,
			Interruptible: i.InstanceLifecycle == ec2types.InstanceLifecycleTypeInterruptibleCapacityReservation,
		}
	}
	out.Tenancy = string(ec2types.TenancyDefault)
	if p := i.Placement; p != nil {
		out.Zone = aws.ToString(p.AvailabilityZone)
		out.Partition = aws.ToInt32(p.PartitionNumber)
		if p.Tenancy != "" {
			out.Tenancy = string(p.Tenancy)
		}
	}
	for _, n := range i.NetworkInterfaces {
		switch ec2types.NetworkInterfaceType(aws.ToString(n.InterfaceType)) {
		case ec2types.NetworkInterfaceTypeEfa, ec2types.NetworkInterfaceTypeEfaOnly:
			out.EFAs++
		default: // an ordinary interface
		}
	}
	if i.State != nil {
		out.State = string(i.State.Name)
	}
	for _, g := range i.SecurityGroups {
		out.SecurityGroups = append(out.SecurityGroups, aws.ToString(g.GroupId))
	}
	slices.Sort(out.SecurityGroups)
	return out
}

// Terminate gives instances back. Those EC2 does not know (any more) are no error.
func (c *Client) Terminate(ctx context.Context, ids []string) error {
	var errs []error
	for batch := range slices.Chunk(ids, batchIDs) {
		_, err := c.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: batch})
		err = wrap(err, "terminating instances")
		if capacity.KindOf(err) != capacity.NotFound {
			errs = append(errs, err)
			continue
		}
		if len(batch) == 1 {
			continue
		}
		// One unknown id fails the whole call: look which are there, and end those.
		known, err := c.describeByFilter(ctx, "instance-id", batch)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var left []string
		for _, i := range known {
			left = append(left, i.ID)
		}
		if len(left) == len(batch) { // all there after all: EC2's parts do not agree yet
			errs = append(errs, &capacity.Error{Kind: capacity.Unavailable, Err: fmt.Errorf("terminating instances: EC2 does not know all of %q yet", left)})
			continue
		}
		errs = append(errs, c.Terminate(ctx, left))
	}
	return errors.Join(errs...)
}

// Tag sets tags of one instance, replacing those of the same keys.
func (c *Client) Tag(ctx context.Context, id string, set map[string]string) error {
	_, err := c.ec2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: tags(set)})
	return wrap(err, "tagging instance %q", id)
}
