// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/smithy-go"
)

// bed is an emulator with clients that don't retry, so that each call is one
// request.
type bed struct {
	*Emulator
	ec2 *ec2.Client
	iam *iam.Client
	ssm *ssm.Client
}

func start(t *testing.T, o Options) *bed {
	t.Helper()
	emu, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(emu.Close)
	cfg := emu.AWSConfig()
	cfg.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
	return &bed{Emulator: emu, ec2: ec2.NewFromConfig(cfg), iam: iam.NewFromConfig(cfg), ssm: ssm.NewFromConfig(cfg)}
}

// code returns AWS's code of an error, "" for none.
func code(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func wantCode(t *testing.T, err error, want string) {
	t.Helper()
	if got := code(err); got != want {
		t.Fatalf("got error %q (%v), want code %q", got, err, want)
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

const nodeConfig = `MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
echo hello
--//
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster:
    name: demo
    apiServerEndpoint: https://127.0.0.1:6443
    certificateAuthority: Y2EtYnVuZGxlCg==
    cidr: 10.100.0.0/16
  kubelet:
    config:
      maxPods: 29
      clusterDNS: [10.100.0.10]
      registerWithTaints:
      - key: karpenter.sh/unregistered
        effect: NoExecute
    flags:
    - --node-labels="karpenter.sh/nodepool=default,team=web"
--//--
`

// image returns the id of the recommended AL2023 image.
func (b *bed) image(t *testing.T, arch string) string {
	t.Helper()
	out, err := b.ssm.GetParameter(t.Context(), &ssm.GetParameterInput{
		Name: aws.String("/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/" + arch + "/standard/recommended/image_id"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return *out.Parameter.Value
}

// profile makes the instance profile "nodes" with the cluster's node role.
func (b *bed) profile(t *testing.T) {
	t.Helper()
	ctx, name := t.Context(), aws.String("nodes")
	if _, err := b.iam.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: name}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.iam.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: name, RoleName: aws.String("KarpenterNodeRole-demo")}); err != nil {
		t.Fatal(err)
	}
}

// template makes the launch template "nodes" of AL2023 machines with user data.
func (b *bed) template(t *testing.T, userData string) {
	t.Helper()
	_, err := b.ec2.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("nodes"),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
			ImageId:            aws.String(b.image(t, "x86_64")),
			UserData:           aws.String(base64.StdEncoding.EncodeToString([]byte(userData))),
			IamInstanceProfile: &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String("nodes")},
			BlockDeviceMappings: []ec2types.LaunchTemplateBlockDeviceMappingRequest{{
				DeviceName: aws.String("/dev/xvda"), Ebs: &ec2types.LaunchTemplateEbsBlockDeviceRequest{VolumeSize: aws.Int32(100)},
			}},
			NetworkInterfaces: []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{
				DeviceIndex: aws.Int32(0), Groups: []string{"sg-0c0ffee0000000002"},
			}},
		},
		TagSpecifications: []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeLaunchTemplate, Tags: tags("karpenter.k8s.aws/cluster", "demo")}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func tags(pairs ...string) []ec2types.Tag {
	var out []ec2types.Tag
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, ec2types.Tag{Key: aws.String(pairs[i]), Value: aws.String(pairs[i+1])})
	}
	return out
}

func filter(name string, values ...string) ec2types.Filter {
	return ec2types.Filter{Name: aws.String(name), Values: values}
}

// override is "type" or "type@zone letter", in us-east-1a without one.
func override(text string) ec2types.FleetLaunchTemplateOverridesRequest {
	name, letter, ok := strings.Cut(text, "@")
	if !ok {
		letter = "a"
	}
	return ec2types.FleetLaunchTemplateOverridesRequest{
		InstanceType: ec2types.InstanceType(name), SubnetId: aws.String(fmt.Sprintf("subnet-0c0ffee00000000%02d", letter[0]-'a'+1)),
	}
}

// fleet asks for n instances of the template "nodes" in any of the pools.
func fleet(n int32, capacityType ec2types.DefaultTargetCapacityType, pools ...string) *ec2.CreateFleetInput {
	in := &ec2.CreateFleetInput{
		Type: ec2types.FleetTypeInstant,
		TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{
			TotalTargetCapacity: aws.Int32(n), DefaultTargetCapacityType: capacityType,
		},
		LaunchTemplateConfigs: []ec2types.FleetLaunchTemplateConfigRequest{{
			LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{
				LaunchTemplateName: aws.String("nodes"), Version: aws.String("$Latest"),
			},
		}},
		TagSpecifications: []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeInstance, Tags: tags("karpenter.sh/nodepool", "default")}},
	}
	for _, p := range pools {
		in.LaunchTemplateConfigs[0].Overrides = append(in.LaunchTemplateConfigs[0].Overrides, override(p))
	}
	return in
}

const (
	spotType     = ec2types.DefaultTargetCapacityTypeSpot
	onDemandType = ec2types.DefaultTargetCapacityTypeOnDemand
)

func TestUnknownAction(t *testing.T) {
	b := start(t, Options{})
	_, err := b.ec2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
	wantCode(t, err, "InvalidAction")
	requests := b.Requests()
	got := requests[len(requests)-1]
	if got.Action != "DescribeVpcs" || got.Code != "InvalidAction" || got.Status != http.StatusBadRequest {
		t.Errorf("recorded %+v", got)
	}
}

func TestUnknownParameterIsRefused(t *testing.T) {
	b := start(t, Options{})
	body := strings.NewReader("Action=DescribeSubnets&Version=2016-11-15&Filtre.1.Name=vpc-id")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.URL(), body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("status %d, want 400", resp.StatusCode)
	}
}

func TestOptionErrors(t *testing.T) {
	tests := []struct {
		name string
		opts Options
		want string
	}{
		{"unknown region", Options{Region: "mars-north-1"}, "Zones"},
		{"subnet in unknown zone", Options{Subnets: []Subnet{{ID: "subnet-1", Zone: "eu-west-1a", CIDR: "10.0.0.0/24"}}}, "unknown zone"},
		{"bad CIDR", Options{Subnets: []Subnet{{ID: "subnet-1", Zone: "us-east-1a", CIDR: "10.0.0.0"}}}, "subnet-1"},
		{"fraction", Options{NeverRegisters: 2}, "out of range"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Start(t.Context(), test.opts)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}
