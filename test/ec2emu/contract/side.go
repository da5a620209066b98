// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// Names that both accounts have.
const (
	cluster   = "demo"
	role      = "KarpenterNodeRole-demo"
	parameter = "/team/parameter"
)

// side is one of the two accounts, with what the calls so far made in it.
type side struct {
	ec2     *ec2.Client
	eks     *eks.Client
	iam     *iam.Client
	pricing *pricing.Client
	sqs     *sqs.Client
	ssm     *ssm.Client
	sts     *sts.Client

	image, subnet, group string
	instance, queue      string
	receipt              string
}

// newSide makes clients without retries: each call is one request.
func newSide(endpoint string) *side {
	cfg := aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(endpoint), HTTPClient: &http.Client{},
		Credentials: credentials.NewStaticCredentialsProvider("AKIACONTRACT", "any", ""),
		Retryer:     func() aws.Retryer { return aws.NopRetryer{} },
	}
	return &side{
		ec2: ec2.NewFromConfig(cfg), eks: eks.NewFromConfig(cfg), iam: iam.NewFromConfig(cfg), pricing: pricing.NewFromConfig(cfg),
		sqs: sqs.NewFromConfig(cfg), ssm: ssm.NewFromConfig(cfg), sts: sts.NewFromConfig(cfg),
	}
}

// furnish gives moto what the emulator has from the start.
func (s *side) furnish(ctx context.Context) error {
	if _, err := s.sqs.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String(cluster)}); err != nil {
		return fmt.Errorf("furnishing moto: %w", err)
	}
	policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`
	r, err := s.iam.CreateRole(ctx, &iam.CreateRoleInput{RoleName: aws.String(role), AssumeRolePolicyDocument: &policy})
	if err != nil {
		return fmt.Errorf("furnishing moto: %w", err)
	}
	if _, err := s.ssm.PutParameter(ctx, &ssm.PutParameterInput{Name: aws.String(parameter), Value: aws.String("value"), Type: "String"}); err != nil {
		return fmt.Errorf("furnishing moto: %w", err)
	}
	subnets, err := s.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{})
	if err != nil {
		return fmt.Errorf("furnishing moto: %w", err)
	}
	config := &ekstypes.VpcConfigRequest{}
	var ids []string
	for _, subnet := range subnets.Subnets {
		config.SubnetIds = append(config.SubnetIds, *subnet.SubnetId)
		ids = append(ids, *subnet.SubnetId)
	}
	discovery := []ec2types.Tag{{Key: aws.String("karpenter.sh/discovery"), Value: aws.String(cluster)}}
	if _, err := s.ec2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: ids, Tags: discovery}); err != nil {
		return fmt.Errorf("furnishing moto: %w", err)
	}
	if _, err := s.eks.CreateCluster(ctx, &eks.CreateClusterInput{Name: aws.String(cluster), RoleArn: r.Role.Arn, ResourcesVpcConfig: config}); err != nil {
		return fmt.Errorf("furnishing moto: %w", err)
	}
	return nil
}

// look finds an image, a subnet and a security group to launch with.
func (s *side) look(ctx context.Context) error {
	images, err := s.ec2.DescribeImages(ctx, &ec2.DescribeImagesInput{
		Owners: []string{"amazon"}, Filters: []ec2types.Filter{{Name: aws.String("architecture"), Values: []string{"x86_64"}}},
	})
	if err != nil {
		return fmt.Errorf("looking for an image: %w", err)
	}
	subnets, err := s.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{
		Filters: []ec2types.Filter{{Name: aws.String("availability-zone"), Values: []string{"us-east-1a"}}},
	})
	if err != nil {
		return fmt.Errorf("looking for a subnet: %w", err)
	}
	groups, err := s.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{})
	if err != nil {
		return fmt.Errorf("looking for a security group: %w", err)
	}
	linux := slices.DeleteFunc(images.Images, func(i ec2types.Image) bool { return i.Platform != "" })
	if len(linux) == 0 || len(subnets.Subnets) == 0 || len(groups.SecurityGroups) == 0 {
		return fmt.Errorf("looking for what to launch: %d images, %d subnets, %d security groups", len(linux), len(subnets.Subnets), len(groups.SecurityGroups))
	}
	s.image, s.subnet, s.group = *linux[0].ImageId, *subnets.Subnets[0].SubnetId, *groups.SecurityGroups[0].GroupId
	return nil
}
