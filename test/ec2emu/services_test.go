// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"encoding/json"
	"errors"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/go-cmp/cmp"
)

func TestSSM(t *testing.T) {
	b := start(t, Options{Parameters: map[string]string{"/team/ami": "ami-00000000000000aaa"}})
	value := func(name string) (string, error) {
		out, err := b.ssm.GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String(name)})
		if err != nil {
			return "", err
		}
		return *out.Parameter.Value, nil
	}
	const al2023 = "/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/x86_64/"
	tests := []struct {
		name, parameter string
		same            string // a parameter with the same value
		error           string
	}{
		{name: "recommended is the newest", parameter: al2023 + "standard/recommended/image_id", same: al2023 + "standard/amazon-eks-node-al2023-x86_64-standard-1.37-v20261008/image_id"},
		{name: "nvidia", parameter: al2023 + "nvidia/recommended/image_id", same: al2023 + "nvidia/amazon-eks-node-al2023-x86_64-nvidia-1.37-v20261008/image_id"},
		{name: "neuron", parameter: al2023 + "neuron/recommended/image_id", same: al2023 + "neuron/recommended/image_id"},
		{name: "by ARN", parameter: "arn:aws:ssm:us-east-1:111122223333:parameter/team/ami", same: "/team/ami"},
		{name: "bottlerocket", parameter: "/aws/service/bottlerocket/aws-k8s-1.36/arm64/latest/image_id", same: "/aws/service/bottlerocket/aws-k8s-1.36/arm64/1.51.0/image_id"},
		{name: "neuron on arm64", parameter: "/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/arm64/neuron/recommended/image_id", error: "ParameterNotFound"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := value(test.parameter)
			wantCode(t, err, test.error)
			if test.same == "" {
				return
			}
			if want, err := value(test.same); err != nil || got != want {
				t.Errorf("got %q, want %q (%v)", got, want, err)
			}
		})
	}
	_, err := value("/nothing")
	if _, ok := errors.AsType[*ssmtypes.ParameterNotFound](err); !ok {
		t.Errorf("got %v, want the SDK's own ParameterNotFound", err)
	}
	out := must[*ssm.GetParametersOutput](t)(b.ssm.GetParameters(t.Context(), &ssm.GetParametersInput{Names: []string{"/team/ami", "/nothing"}}))
	if len(out.Parameters) != 1 || *out.Parameters[0].Value != "ami-00000000000000aaa" || len(out.InvalidParameters) != 1 {
		t.Errorf("GetParameters: %+v, invalid %v", out.Parameters, out.InvalidParameters)
	}
	b.SetParameter("/team/ami", "")
	_, err = value("/team/ami")
	wantCode(t, err, "ParameterNotFound")
}

func TestEKS(t *testing.T) {
	b := start(t, Options{ClusterName: "prod", ClusterEndpoint: "https://127.0.0.1:1", KubernetesVersion: "1.36"})
	b.SetCluster("https://127.0.0.1:2", []byte("pem"))
	client := eks.NewFromConfig(b.AWSConfig())
	out := must[*eks.DescribeClusterOutput](t)(client.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("prod")})).Cluster
	got := map[string]string{
		"endpoint": *out.Endpoint, "version": *out.Version, "ca": *out.CertificateAuthority.Data,
		"cidr": *out.KubernetesNetworkConfig.ServiceIpv4Cidr, "status": string(out.Status), "arn": *out.Arn,
	}
	want := map[string]string{
		"endpoint": "https://127.0.0.1:2", "version": "1.36", "ca": "cGVt", "cidr": "10.100.0.0/16", "status": "ACTIVE",
		"arn": "arn:aws:eks:us-east-1:111122223333:cluster/prod",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, err := client.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("none")})
	if _, ok := errors.AsType[*ekstypes.ResourceNotFoundException](err); !ok {
		t.Errorf("got %v, want the SDK's own ResourceNotFoundException", err)
	}
	_, err = client.ListClusters(t.Context(), &eks.ListClustersInput{})
	if err == nil {
		t.Error("an action that is not emulated succeeded")
	}
}

func TestIAM(t *testing.T) {
	b := start(t, Options{})
	ctx, name, role := t.Context(), aws.String("p1"), aws.String("KarpenterNodeRole-demo")
	steps := []struct {
		name string
		call func() error
		want string
	}{
		{"get before create", func() error {
			_, err := b.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: name})
			return err
		}, "NoSuchEntity"},
		{"create", func() error {
			_, err := b.iam.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{
				InstanceProfileName: name, Path: aws.String("/karpenter/us-east-1/demo/uid/"),
				Tags: []iamtypes.Tag{{Key: aws.String("k"), Value: aws.String("v")}},
			})
			return err
		}, ""},
		{"create again", func() error {
			_, err := b.iam.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: name})
			return err
		}, "EntityAlreadyExists"},
		{"unknown role", func() error {
			_, err := b.iam.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: name, RoleName: aws.String("nobody")})
			return err
		}, "NoSuchEntity"},
		{"add role", func() error {
			_, err := b.iam.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: name, RoleName: role})
			return err
		}, ""},
		{"add a second role", func() error {
			_, err := b.iam.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: name, RoleName: role})
			return err
		}, "LimitExceeded"},
		{"delete with a role", func() error {
			_, err := b.iam.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: name})
			return err
		}, "DeleteConflict"},
		{"tag", func() error {
			_, err := b.iam.TagInstanceProfile(ctx, &iam.TagInstanceProfileInput{InstanceProfileName: name, Tags: []iamtypes.Tag{{Key: aws.String("k"), Value: aws.String("w")}}})
			return err
		}, ""},
		{"role", func() error {
			_, err := b.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: aws.String("nobody")})
			return err
		}, "NoSuchEntity"},
	}
	for _, s := range steps {
		if got := code(s.call()); got != s.want {
			t.Fatalf("%s: got %q, want %q", s.name, got, s.want)
		}
	}
	p := must[*iam.GetInstanceProfileOutput](t)(b.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: name})).InstanceProfile
	if len(p.Roles) != 1 || *p.Roles[0].RoleName != *role || len(p.Tags) != 1 || *p.Tags[0].Value != "w" {
		t.Errorf("profile %+v", p)
	}
	_, err := b.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: aws.String("x")})
	if _, ok := errors.AsType[*iamtypes.NoSuchEntityException](err); !ok {
		t.Errorf("got %v, want the SDK's own NoSuchEntityException", err)
	}
}

func TestListInstanceProfilesPages(t *testing.T) {
	b := start(t, Options{})
	for i := range 7 {
		path := "/a/"
		if i == 3 {
			path = "/b/"
		}
		must[*iam.CreateInstanceProfileOutput](t)(b.iam.CreateInstanceProfile(t.Context(), &iam.CreateInstanceProfileInput{
			InstanceProfileName: aws.String("p" + strconv.Itoa(i)), Path: aws.String(path),
		}))
	}
	var names []string
	in := &iam.ListInstanceProfilesInput{PathPrefix: aws.String("/a/"), MaxItems: aws.Int32(2)}
	for pages := iam.NewListInstanceProfilesPaginator(b.iam, in); pages.HasMorePages(); {
		out := must[*iam.ListInstanceProfilesOutput](t)(pages.NextPage(t.Context()))
		for _, p := range out.InstanceProfiles {
			names = append(names, *p.InstanceProfileName)
		}
	}
	if diff := cmp.Diff([]string{"p0", "p1", "p2", "p4", "p5", "p6"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSTS(t *testing.T) {
	b := start(t, Options{AccountID: "444455556666"})
	out := must[*sts.GetCallerIdentityOutput](t)(sts.NewFromConfig(b.AWSConfig()).GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{}))
	if *out.Account != "444455556666" {
		t.Errorf("account %s", *out.Account)
	}
}

// Prices are read as Karpenter reads them: filters, pages of 100, JSON texts.
func TestPricing(t *testing.T) {
	b := start(t, Options{})
	client := pricing.NewFromConfig(b.AWSConfig())
	term := func(field, value string) pricingtypes.Filter {
		return pricingtypes.Filter{Field: aws.String(field), Type: pricingtypes.FilterTypeTermMatch, Value: aws.String(value)}
	}
	prices := map[string]float64{}
	for _, kind := range [][2]string{{"Shared", "Compute Instance"}, {"Dedicated", "Compute Instance (bare metal)"}} {
		in := &pricing.GetProductsInput{ServiceCode: aws.String("AmazonEC2"), MaxResults: aws.Int32(100), Filters: []pricingtypes.Filter{
			term("regionCode", "us-east-1"), term("serviceCode", "AmazonEC2"), term("preInstalledSw", "NA"), term("operatingSystem", "Linux"),
			term("capacitystatus", "Used"), term("marketoption", "OnDemand"), term("tenancy", kind[0]), term("productFamily", kind[1]),
		}}
		for pages := pricing.NewGetProductsPaginator(client, in); pages.HasMorePages(); {
			for _, text := range must[*pricing.GetProductsOutput](t)(pages.NextPage(t.Context())).PriceList {
				var item struct {
					Product struct{ Attributes struct{ InstanceType string } }
					Terms   struct {
						OnDemand map[string]struct {
							PriceDimensions map[string]struct{ PricePerUnit map[string]string }
						}
					}
				}
				if err := json.Unmarshal([]byte(text), &item); err != nil {
					t.Fatal(err)
				}
				for _, t1 := range item.Terms.OnDemand {
					for _, d := range t1.PriceDimensions {
						price, err := strconv.ParseFloat(d.PricePerUnit["USD"], 64)
						if err != nil {
							t.Fatal(err)
						}
						prices[item.Product.Attributes.InstanceType] = price
					}
				}
			}
		}
	}
	if len(prices) < 1300 || prices["m5.large"] != 0.096 || prices["m5.metal"] != 4.608 {
		t.Errorf("%d prices, m5.large %v, m5.metal %v", len(prices), prices["m5.large"], prices["m5.metal"])
	}
	_, err := client.GetProducts(t.Context(), &pricing.GetProductsInput{ServiceCode: aws.String("AmazonS3")})
	wantCode(t, err, "NotFoundException")
}
