// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// EnsureInstanceProfile returns the name of an instance profile that holds the
// class's role, making it if need be. A profile made earlier for the same class
// and role, by Slipway or Karpenter, is used again, and whatever part of a
// profile an earlier call left out is added, so a call can be repeated at any point.
// A class that names its own instance profile gets that, if it exists. Errors are
// of kind NotFound if the role or that profile does not exist.
func (c *Client) EnsureInstanceProfile(ctx context.Context, class *v1.EC2NodeClass) (string, error) {
	if class.Spec.InstanceProfile != nil {
		return *class.Spec.InstanceProfile, c.checkProfile(ctx, *class.Spec.InstanceProfile)
	}
	if class.Spec.Role == "" {
		return "", invalid("spec: one of role and instanceProfile must be set")
	}
	if c.opts.IsolatedVPC {
		return "", invalid("spec.role: IAM cannot be reached from an isolated VPC to make an instance profile; set spec.instanceProfile instead")
	}
	role := RoleName(class.Spec.Role)
	profiles, err := c.profilesOf(ctx, class)
	if err != nil {
		return "", err
	}
	name := c.profileName(class, role)
	for _, p := range profiles {
		have := profileRole(p)
		switch {
		case have == role:
			return aws.ToString(p.InstanceProfileName), nil
		case aws.ToString(p.InstanceProfileName) == name && have == "":
			return name, c.addRole(ctx, name, role)
		}
	}
	if c.holds(ctx, class.Status.InstanceProfile, role) {
		return class.Status.InstanceProfile, nil
	}
	_, err = c.iam.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{
		InstanceProfileName: aws.String(name),
		Path:                aws.String(c.profilePath(class)),
		Tags:                iamTags(class.InstanceProfileTags(c.opts.ClusterName, c.opts.Region)),
	})
	if err = wrap(err, "creating instance profile %q", name); err != nil && codeOf(err) != codeEntityExists {
		return "", err
	}
	return name, c.addRole(ctx, name, role)
}

// holds reports whether a profile that older versions of Karpenter made, outside the class's path, holds the role.
func (c *Client) holds(ctx context.Context, profile, role string) bool {
	if profile == "" {
		return false
	}
	out, err := c.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: aws.String(profile)})
	return err == nil && out.InstanceProfile != nil && profileRole(*out.InstanceProfile) == role
}

// checkProfile reports that a profile does not exist. Where IAM cannot be asked, it is taken to exist.
func (c *Client) checkProfile(ctx context.Context, name string) error {
	if c.opts.IsolatedVPC {
		return nil
	}
	_, err := c.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: aws.String(name)})
	if err = wrap(err, "reading instance profile %q", name); capacity.KindOf(err) == capacity.Unauthorized {
		return nil
	}
	return err
}

func (c *Client) addRole(ctx context.Context, name, role string) error {
	_, err := c.iam.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{
		InstanceProfileName: aws.String(name), RoleName: aws.String(role),
	})
	err = wrap(err, "adding role %q to instance profile %q", role, name)
	if codeOf(err) == "LimitExceeded" { // a profile holds one role, and this one's is ours: another call added it first
		return nil
	}
	return err
}

// DeleteInstanceProfiles deletes every instance profile made for the class. Profiles that are gone already are no
// error. In an isolated network, where IAM cannot be reached and so none was made, it does nothing.
func (c *Client) DeleteInstanceProfiles(ctx context.Context, class *v1.EC2NodeClass) error {
	if c.opts.IsolatedVPC {
		return nil
	}
	profiles, err := c.profilesOf(ctx, class)
	if err != nil {
		return err
	}
	// Versions of Karpenter before 1.5 made one of this name, outside the class's path.
	legacy := class.LegacyInstanceProfileName(c.opts.ClusterName, c.opts.Region)
	out, err := c.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: aws.String(legacy)})
	if err == nil && out.InstanceProfile != nil {
		profiles = append(profiles, *out.InstanceProfile)
	}
	var errs []error
	err = wrap(err, "reading instance profile %q", legacy)
	if k := capacity.KindOf(err); err != nil && k != capacity.NotFound && k != capacity.Unauthorized {
		errs = append(errs, err)
	}
	for _, p := range profiles {
		errs = append(errs, c.deleteProfile(ctx, p))
	}
	return errors.Join(errs...)
}

func (c *Client) deleteProfile(ctx context.Context, p iamtypes.InstanceProfile) error {
	for _, r := range p.Roles {
		_, err := c.iam.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{
			InstanceProfileName: p.InstanceProfileName, RoleName: r.RoleName,
		})
		if err = ignoreNotFound(wrap(err, "removing the role from instance profile %q", aws.ToString(p.InstanceProfileName))); err != nil {
			return err
		}
	}
	_, err := c.iam.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: p.InstanceProfileName})
	return ignoreNotFound(wrap(err, "deleting instance profile %q", aws.ToString(p.InstanceProfileName)))
}

// profilesOf lists the profiles made for the class, which its path tells.
func (c *Client) profilesOf(ctx context.Context, class *v1.EC2NodeClass) ([]iamtypes.InstanceProfile, error) {
	return c.profilesUnder(ctx, c.profilePath(class))
}

// profilePath is Karpenter's: its IAM policy and its own collection of unused profiles are built on it.
func (c *Client) profilePath(class *v1.EC2NodeClass) string {
	return c.profileRoot() + string(class.UID) + "/"
}

func (c *Client) profileRoot() string {
	return fmt.Sprintf("/karpenter/%s/%s/", c.opts.Region, c.opts.ClusterName)
}

// profileName has Karpenter's form, the cluster's name and a number, but is the same each time for the same class and role.
func (c *Client) profileName(class *v1.EC2NodeClass, role string) string {
	h := fnv.New64a()
	for _, s := range []string{c.opts.Region, class.Name, string(class.UID), role} {
		_, _ = h.Write([]byte(s + "\x00")) // a hash never fails to take bytes
	}
	return fmt.Sprintf("%s_%d", c.opts.ClusterName, h.Sum64())
}

// RoleName is the name of a role as instance profiles hold it: without its path.
func RoleName(role string) string { return role[strings.LastIndex(role, "/")+1:] }

func profileRole(p iamtypes.InstanceProfile) string {
	if len(p.Roles) == 0 {
		return ""
	}
	return aws.ToString(p.Roles[0].RoleName)
}

func iamTags(tags map[string]string) []iamtypes.Tag {
	out := make([]iamtypes.Tag, 0, len(tags))
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, iamtypes.Tag{Key: aws.String(k), Value: aws.String(tags[k])})
	}
	return out
}

func ignoreNotFound(err error) error {
	if capacity.KindOf(err) == capacity.NotFound {
		return nil
	}
	return err
}
