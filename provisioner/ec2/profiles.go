// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// InstanceProfile is one that Slipway or Karpenter made for a node class of the cluster.
type InstanceProfile struct {
	Name string
	ARN  string
	// Role is the name of the role it holds, empty if none.
	Role string
	// Class is the class it was made for.
	Class types.UID
}

// InstanceProfiles lists the instance profiles made for node classes of the cluster, those of classes that are gone included.
// In an isolated network, where IAM cannot be reached and so none was made, there are none.
func (c *Client) InstanceProfiles(ctx context.Context) ([]InstanceProfile, error) {
	if c.opts.IsolatedVPC {
		return nil, nil
	}
	found, err := c.profilesUnder(ctx, c.profileRoot())
	if err != nil {
		return nil, err
	}
	var out []InstanceProfile
	for _, p := range found {
		uid, rest, ok := strings.Cut(strings.TrimPrefix(aws.ToString(p.Path), c.profileRoot()), "/")
		if !ok || uid == "" || rest != "" {
			continue // somebody else's
		}
		out = append(out, InstanceProfile{Name: aws.ToString(p.InstanceProfileName), ARN: aws.ToString(p.Arn), Role: profileRole(p), Class: types.UID(uid)})
	}
	return out, nil
}

// DeleteInstanceProfile deletes a profile that no instance has. If one has, which would lose its credentials, nothing is
// done and the error is of kind Conflict. A profile that is gone already is no error.
func (c *Client) DeleteInstanceProfile(ctx context.Context, p InstanceProfile) error {
	users, err := c.describe(ctx, &ec2.DescribeInstancesInput{
		Filters: []ec2types.Filter{
			filter("iam-instance-profile.arn", p.ARN),
			filter("instance-state-name", "pending", "running", "stopping", "stopped", "shutting-down"),
		},
		MaxResults: aws.Int32(5),
	})
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return &capacity.Error{Kind: capacity.Conflict, Err: fmt.Errorf("deleting instance profile %q: instance %q has it", p.Name, users[0].ID)}
	}
	old := iamtypes.InstanceProfile{InstanceProfileName: aws.String(p.Name)}
	if p.Role != "" {
		old.Roles = []iamtypes.Role{{RoleName: aws.String(p.Role)}}
	}
	return c.deleteProfile(ctx, old)
}

// profilesUnder lists the profiles whose path begins so.
func (c *Client) profilesUnder(ctx context.Context, path string) ([]iamtypes.InstanceProfile, error) {
	var out []iamtypes.InstanceProfile
	pages := iam.NewListInstanceProfilesPaginator(c.iam, &iam.ListInstanceProfilesInput{PathPrefix: aws.String(path)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, wrap(err, "listing instance profiles")
		}
		out = append(out, page.InstanceProfiles...)
	}
	return out, nil
}
