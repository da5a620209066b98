// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

const profile = "contract"

func iamOf(s *side) *iam.Client { return s.iam }
func sqsOf(s *side) *sqs.Client { return s.sqs }
func ssmOf(s *side) *ssm.Client { return s.ssm }
func eksOf(s *side) *eks.Client { return s.eks }
func stsOf(s *side) *sts.Client { return s.sts }

func profileSteps() []step {
	p, none := aws.String(profile), aws.String("none")
	tag := []iamtypes.Tag{{Key: aws.String("team"), Value: aws.String("web")}}
	return []step{
		on("iam CreateInstanceProfile", iamOf, (*iam.Client).CreateInstanceProfile, fixed(iam.CreateInstanceProfileInput{InstanceProfileName: p, Path: aws.String("/karpenter/"), Tags: tag})),
		on("iam CreateInstanceProfile (name in use)", iamOf, (*iam.Client).CreateInstanceProfile, fixed(iam.CreateInstanceProfileInput{InstanceProfileName: p})),
		on("iam AddRoleToInstanceProfile (unknown role)", iamOf, (*iam.Client).AddRoleToInstanceProfile, fixed(iam.AddRoleToInstanceProfileInput{InstanceProfileName: p, RoleName: none})),
		on("iam AddRoleToInstanceProfile (unknown profile)", iamOf, (*iam.Client).AddRoleToInstanceProfile, fixed(iam.AddRoleToInstanceProfileInput{InstanceProfileName: none, RoleName: aws.String(role)})),
		on("iam AddRoleToInstanceProfile", iamOf, (*iam.Client).AddRoleToInstanceProfile, fixed(iam.AddRoleToInstanceProfileInput{InstanceProfileName: p, RoleName: aws.String(role)})),
		on("iam AddRoleToInstanceProfile (second role)", iamOf, (*iam.Client).AddRoleToInstanceProfile, fixed(iam.AddRoleToInstanceProfileInput{InstanceProfileName: p, RoleName: aws.String(role)})),
		on("iam GetInstanceProfile", iamOf, (*iam.Client).GetInstanceProfile, fixed(iam.GetInstanceProfileInput{InstanceProfileName: p})),
		on("iam GetInstanceProfile (unknown)", iamOf, (*iam.Client).GetInstanceProfile, fixed(iam.GetInstanceProfileInput{InstanceProfileName: none})),
		on("iam TagInstanceProfile", iamOf, (*iam.Client).TagInstanceProfile, fixed(iam.TagInstanceProfileInput{InstanceProfileName: p, Tags: tag})),
		on("iam ListInstanceProfiles (by path)", iamOf, (*iam.Client).ListInstanceProfiles, fixed(iam.ListInstanceProfilesInput{PathPrefix: aws.String("/karpenter/")})),
		on("iam GetRole", iamOf, (*iam.Client).GetRole, fixed(iam.GetRoleInput{RoleName: aws.String(role)})),
		on("iam GetRole (unknown)", iamOf, (*iam.Client).GetRole, fixed(iam.GetRoleInput{RoleName: none})),
	}
}

// otherSteps end what profileSteps made and ask the small services.
func otherSteps() []step {
	p, none := aws.String(profile), aws.String("none")
	return []step{
		on("iam DeleteInstanceProfile (with a role)", iamOf, (*iam.Client).DeleteInstanceProfile, fixed(iam.DeleteInstanceProfileInput{InstanceProfileName: p})),
		on("iam RemoveRoleFromInstanceProfile", iamOf, (*iam.Client).RemoveRoleFromInstanceProfile, fixed(iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: p, RoleName: aws.String(role)})),
		on("iam RemoveRoleFromInstanceProfile (again)", iamOf, (*iam.Client).RemoveRoleFromInstanceProfile, fixed(iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: p, RoleName: aws.String(role)})),
		on("iam DeleteInstanceProfile", iamOf, (*iam.Client).DeleteInstanceProfile, fixed(iam.DeleteInstanceProfileInput{InstanceProfileName: p})),
		on("iam DeleteInstanceProfile (unknown)", iamOf, (*iam.Client).DeleteInstanceProfile, fixed(iam.DeleteInstanceProfileInput{InstanceProfileName: none})),
		on("sts GetCallerIdentity", stsOf, (*sts.Client).GetCallerIdentity, fixed(sts.GetCallerIdentityInput{})),
		on("ssm GetParameter", ssmOf, (*ssm.Client).GetParameter, fixed(ssm.GetParameterInput{Name: aws.String(parameter)})),
		on("ssm GetParameter (unknown)", ssmOf, (*ssm.Client).GetParameter, fixed(ssm.GetParameterInput{Name: aws.String("/none")})),
		on("ssm GetParameters", ssmOf, (*ssm.Client).GetParameters, fixed(ssm.GetParametersInput{Names: []string{parameter, "/none"}})),
		on("eks DescribeCluster", eksOf, (*eks.Client).DescribeCluster, fixed(eks.DescribeClusterInput{Name: aws.String(cluster)})),
		on("eks DescribeCluster (unknown)", eksOf, (*eks.Client).DescribeCluster, fixed(eks.DescribeClusterInput{Name: none})),
	}
}

func queueSteps() []step {
	name := func(text string) func(*side) *sqs.GetQueueUrlInput {
		return fixed(sqs.GetQueueUrlInput{QueueName: aws.String(text)})
	}
	send := on("sqs SendMessage", sqsOf, (*sqs.Client).SendMessage, func(s *side) *sqs.SendMessageInput {
		return &sqs.SendMessageInput{QueueUrl: &s.queue, MessageBody: aws.String("text")}
	})
	receive := on("sqs ReceiveMessage", sqsOf, (*sqs.Client).ReceiveMessage, func(s *side) *sqs.ReceiveMessageInput {
		return &sqs.ReceiveMessageInput{QueueUrl: &s.queue, MaxNumberOfMessages: 1, MessageSystemAttributeNames: []sqstypes.MessageSystemAttributeName{"All"}}
	}, func(s *side, out *sqs.ReceiveMessageOutput) { s.receipt = *out.Messages[0].ReceiptHandle })
	remove := func(handle string) func(*side) *sqs.DeleteMessageInput {
		return func(s *side) *sqs.DeleteMessageInput {
			if handle == "" {
				return &sqs.DeleteMessageInput{QueueUrl: &s.queue, ReceiptHandle: &s.receipt}
			}
			return &sqs.DeleteMessageInput{QueueUrl: &s.queue, ReceiptHandle: &handle}
		}
	}
	batch := func(ids ...string) func(*side) *sqs.DeleteMessageBatchInput {
		return func(s *side) *sqs.DeleteMessageBatchInput {
			in := &sqs.DeleteMessageBatchInput{QueueUrl: &s.queue, Entries: []sqstypes.DeleteMessageBatchRequestEntry{}}
			for _, id := range ids {
				in.Entries = append(in.Entries, sqstypes.DeleteMessageBatchRequestEntry{Id: aws.String(id), ReceiptHandle: &s.receipt})
			}
			return in
		}
	}
	return []step{
		on("sqs GetQueueUrl", sqsOf, (*sqs.Client).GetQueueUrl, name(cluster), func(s *side, out *sqs.GetQueueUrlOutput) { s.queue = *out.QueueUrl }),
		on("sqs GetQueueUrl (unknown)", sqsOf, (*sqs.Client).GetQueueUrl, name("none")),
		on("sqs PurgeQueue", sqsOf, (*sqs.Client).PurgeQueue, func(s *side) *sqs.PurgeQueueInput { return &sqs.PurgeQueueInput{QueueUrl: &s.queue} }),
		send, receive,
		on("sqs ReceiveMessage (too many)", sqsOf, (*sqs.Client).ReceiveMessage, func(s *side) *sqs.ReceiveMessageInput {
			return &sqs.ReceiveMessageInput{QueueUrl: &s.queue, MaxNumberOfMessages: 11}
		}),
		on("sqs ReceiveMessage (unknown queue)", sqsOf, (*sqs.Client).ReceiveMessage, func(s *side) *sqs.ReceiveMessageInput {
			return &sqs.ReceiveMessageInput{QueueUrl: aws.String(s.queue + "x")}
		}),
		on("sqs ChangeMessageVisibility", sqsOf, (*sqs.Client).ChangeMessageVisibility, func(s *side) *sqs.ChangeMessageVisibilityInput {
			return &sqs.ChangeMessageVisibilityInput{QueueUrl: &s.queue, ReceiptHandle: &s.receipt, VisibilityTimeout: 30}
		}),
		on("sqs GetQueueAttributes", sqsOf, (*sqs.Client).GetQueueAttributes, func(s *side) *sqs.GetQueueAttributesInput {
			return &sqs.GetQueueAttributesInput{QueueUrl: &s.queue, AttributeNames: []sqstypes.QueueAttributeName{"All"}}
		}),
		on("sqs DeleteMessage (no receipt of SQS's)", sqsOf, (*sqs.Client).DeleteMessage, remove("nonsense")),
		on("sqs DeleteMessage", sqsOf, (*sqs.Client).DeleteMessage, remove("")),
		send, receive,
		on("sqs DeleteMessageBatch (no entries)", sqsOf, (*sqs.Client).DeleteMessageBatch, batch()),
		on("sqs DeleteMessageBatch (equal ids)", sqsOf, (*sqs.Client).DeleteMessageBatch, batch("a", "a")),
		on("sqs DeleteMessageBatch", sqsOf, (*sqs.Client).DeleteMessageBatch, batch("a")),
	}
}
