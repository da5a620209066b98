// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	smithy "github.com/aws/smithy-go"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// codeDryRun is the code of the "error" that says that a dry run would have worked.
const codeDryRun = "DryRunOperation"

// CheckLaunch asks EC2 whether this process may launch instances of the class, as
// Karpenter does, without launching any: it makes a launch template with the class's
// user data, tries CreateFleet and RunInstances with it as dry runs (the latter in
// one subnet after the other until one agrees), and deletes the template.
//
// An error of kind Unauthorized or Invalid is a verdict, and [Action] of it says
// which call was refused; one of another kind says nothing about the class. What a
// dry run finds wrong beyond permissions (a type that is not sold in a zone) is no
// error: the launch picks among many.
func (c *Client) CheckLaunch(ctx context.Context, class *v1.EC2NodeClass) error {
	tags := c.launchTags(class)
	t, err := c.checkTemplate(ctx, class, tags)
	if err != nil {
		return err
	}
	if err := c.EnsureTemplate(ctx, t); err != nil {
		return err
	}
	defer func() {
		// Whoever collects unused templates finds it by its tags if this fails.
		_ = c.DeleteTemplate(context.WithoutCancel(ctx), t.Name)
	}()
	typ := checkType(class, t.ImageID)
	request := FleetRequest{Count: 1, CapacityType: karpv1.CapacityTypeOnDemand, Tags: tags}
	for _, s := range class.Status.Subnets {
		request.Overrides = append(request.Overrides, FleetOverride{TemplateName: t.Name, InstanceType: typ, SubnetID: s.ID, Zone: s.Zone})
	}
	request.Overrides = request.Overrides[:min(len(request.Overrides), maxOverrides)]
	input, err := fleetInput(request)
	if err != nil {
		return err
	}
	input.DryRun = aws.Bool(true)
	_, err = c.ec2.CreateFleet(ctx, input, once)
	if err = verdict(wrap(err, "creating a fleet, as a dry run")); err != nil {
		return err
	}
	return c.checkRun(ctx, class, t, typ, tags)
}

// checkRun tries RunInstances in each subnet; the first subnet's error counts, because permissions are not by subnet.
func (c *Client) checkRun(ctx context.Context, class *v1.EC2NodeClass, t Template, typ string, tags map[string]string) error {
	var first error
	for i, s := range class.Status.Subnets {
		_, err := c.ec2.RunInstances(ctx, &ec2.RunInstancesInput{
			DryRun: aws.Bool(true), MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
			LaunchTemplate: &ec2types.LaunchTemplateSpecification{LaunchTemplateName: aws.String(t.Name), Version: aws.String("$Latest")},
			InstanceType:   ec2types.InstanceType(typ),
			NetworkInterfaces: []ec2types.InstanceNetworkInterfaceSpecification{
				{DeviceIndex: aws.Int32(0), SubnetId: aws.String(s.ID)},
			},
			TagSpecifications: tagSpecs(tags, ec2types.ResourceTypeInstance, ec2types.ResourceTypeVolume, ec2types.ResourceTypeNetworkInterface),
		}, once)
		err = verdict(wrap(err, "running an instance, as a dry run"))
		if err == nil {
			return nil
		}
		if i == 0 {
			first = err
		}
	}
	return first
}

// verdict keeps of a dry run's error what says something about permissions, or that EC2 did not get to it.
func verdict(err error) error {
	if codeOf(err) == codeDryRun {
		return nil
	}
	switch capacity.KindOf(err) {
	case capacity.Unauthorized, capacity.Throttled, capacity.Unavailable, capacity.NotReady:
		return err
	default: // about the sample's type or zone, not about the class
		return nil
	}
}

// launchTags are the tags of a launch of the class that belongs to no pool.
func (c *Client) launchTags(class *v1.EC2NodeClass) map[string]string {
	out := maps.Clone(class.Spec.Tags)
	if out == nil {
		out = map[string]string{}
	}
	out[TagClusterPrefix+c.opts.ClusterName] = "owned"
	out[TagClusterName] = c.opts.ClusterName
	out[TagNodePool] = ""
	out[TagNodeClass] = class.Name
	return out
}

// checkTemplate is a launch template of the class for its plainest image.
func (c *Client) checkTemplate(ctx context.Context, class *v1.EC2NodeClass, tags map[string]string) (Template, error) {
	family, err := Family(class)
	if err != nil {
		return Template{}, err
	}
	cluster := Cluster{}
	if family != v1.AMIFamilyCustom { // whose user data says everything itself
		if cluster, err = c.Cluster(ctx); err != nil {
			return Template{}, err
		}
	}
	t, err := ClassTemplate(class)
	if err != nil {
		return Template{}, err
	}
	t.UserData, err = UserData(family, ClassBootstrap(cluster, class))
	if err != nil {
		return Template{}, err
	}
	t.ImageID, t.Tags = checkImage(class), maps.Clone(tags)
	t.Tags[TagTemplate] = "true"
	t.Name = TemplateName(t)
	return t, nil
}

// checkImage is the first image without requirements on accelerators, whose snapshot fits every block device mapping, else
// the first.
func checkImage(class *v1.EC2NodeClass) string {
	for _, a := range class.Status.AMIs {
		if !requires(a, v1.LabelInstanceGPUCount) && !requires(a, v1.LabelInstanceAcceleratorCount) {
			return a.ID
		}
	}
	if len(class.Status.AMIs) > 0 {
		return class.Status.AMIs[0].ID
	}
	return ""
}

func requires(a v1.AMI, key string) bool {
	return slices.ContainsFunc(a.Requirements, func(r corev1.NodeSelectorRequirement) bool {
		return r.Key == key && r.Operator == corev1.NodeSelectorOpExists
	})
}

// checkType is a common type the image boots on.
func checkType(class *v1.EC2NodeClass, image string) string {
	for _, a := range class.Status.AMIs {
		if a.ID != image {
			continue
		}
		arm := slices.ContainsFunc(a.Requirements, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == corev1.LabelArchStable && slices.Contains(r.Values, karpv1.ArchitectureArm64)
		})
		switch {
		case requires(a, v1.LabelInstanceAcceleratorCount):
			return "inf2.xlarge"
		case requires(a, v1.LabelInstanceGPUCount) && arm:
			return "g5g.xlarge"
		case requires(a, v1.LabelInstanceGPUCount):
			return "g4dn.xlarge"
		case arm:
			return "m6g.large"
		}
	}
	return "m5.large"
}

// Denial says in fixed words why IAM refused a call: by which of its kinds of policy (as Karpenter's conditions do).
func Denial(err error) string {
	text := ""
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		text = api.ErrorMessage()
	}
	switch {
	case strings.Contains(text, "with an explicit deny in a permissions boundary"):
		return "User is not authorized to perform this operation due to a permission boundary"
	case strings.Contains(text, "with an explicit deny in a service control policy"):
		return "User is not authorized to perform this operation due to a service control policy"
	case strings.Contains(text, "Not authorized for images"):
		return "User is not authorized for AMI used in instance launch"
	}
	return "User is not authorized to perform this operation because no identity-based policy allows it"
}

// Action names the call an error is about as IAM policies do, for instance ec2:RunInstances; empty if it is about none.
func Action(err error) string {
	var op *smithy.OperationError
	if !errors.As(err, &op) {
		return ""
	}
	return servicePrefix(op.Service()) + ":" + op.Operation()
}

// servicePrefix is the prefix IAM has for a service the SDK names.
func servicePrefix(service string) string {
	switch service {
	case "EC2":
		return "ec2"
	case "SSM":
		return "ssm"
	case "EKS":
		return "eks"
	case "IAM":
		return "iam"
	case "Pricing":
		return "pricing"
	case "SQS":
		return "sqs"
	}
	return service
}
