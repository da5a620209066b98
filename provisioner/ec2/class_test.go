// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

func kubeletOf(k v1.KubeletConfiguration) func(*v1.EC2NodeClass) {
	return func(c *v1.EC2NodeClass) { c.Spec.Kubelet = &k }
}

func TestCheckClass(t *testing.T) {
	alias := func(a string) func(*v1.EC2NodeClass) {
		return func(c *v1.EC2NodeClass) { c.Spec.AMISelectorTerms = []v1.AMISelectorTerm{{Alias: a}} }
	}
	tests := []struct {
		name   string
		change func(*v1.EC2NodeClass)
		want   string // empty: valid
	}{
		{"al2023", nil, ""},
		{"bottlerocket", alias("bottlerocket@v1.50.0"), ""},
		{"custom family with an alias", func(c *v1.EC2NodeClass) { c.Spec.AMIFamily = aws.String("Custom") }, ""},
		{"alias without version", alias("al2023"), "spec.amiSelectorTerms"},
		{"alias of an unknown family", alias("gentoo@latest"), "spec.amiSelectorTerms"},
		{"Windows", alias("windows2022@latest"), ""},
		{"no family", func(c *v1.EC2NodeClass) { c.Spec.AMISelectorTerms = []v1.AMISelectorTerm{{ID: "ami-1"}} }, "spec.amiFamily"},
		{"bad reservation", func(c *v1.EC2NodeClass) {
			c.Spec.Kubelet = &v1.KubeletConfiguration{KubeReserved: map[string]string{"cpu": "lots"}}
		}, "spec.kubelet.kubeReserved"},
		{"reservation of an unknown resource", kubeletOf(v1.KubeletConfiguration{SystemReserved: map[string]string{"gpu": "1"}}), "spec.kubelet.systemReserved"},
		{"negative reservation", kubeletOf(v1.KubeletConfiguration{KubeReserved: map[string]string{"pid": "-1"}}), "spec.kubelet.kubeReserved"},
		{"unknown signal", kubeletOf(v1.KubeletConfiguration{EvictionSoft: map[string]string{"mem": "1Gi"}}), "spec.kubelet.evictionSoft"},
		{"soft threshold without grace", kubeletOf(v1.KubeletConfiguration{EvictionSoft: map[string]string{"memory.available": "1Gi"}}), "spec.kubelet.evictionSoftGracePeriod"},
		{"negative threshold", kubeletOf(v1.KubeletConfiguration{EvictionHard: map[string]string{"pid.available": "-5"}}), "spec.kubelet.evictionHard"},
		{"negative pods", kubeletOf(v1.KubeletConfiguration{MaxPods: aws.Int32(-1)}), "spec.kubelet.maxPods"},
		{"image threshold over 100", kubeletOf(v1.KubeletConfiguration{ImageGCHighThresholdPercent: aws.Int32(101)}), "spec.kubelet.imageGCHighThresholdPercent"},
		{"image thresholds the wrong way round", kubeletOf(v1.KubeletConfiguration{
			ImageGCHighThresholdPercent: aws.Int32(50), ImageGCLowThresholdPercent: aws.Int32(50),
		}), "spec.kubelet.imageGCHighThresholdPercent"},
		{"everything set", func(c *v1.EC2NodeClass) { c.Spec.Kubelet = kubelet() }, ""},
		{"bad threshold", func(c *v1.EC2NodeClass) {
			c.Spec.Kubelet = &v1.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "200%"}}
		}, "spec.kubelet.evictionHard"},
		{"device without EBS", func(c *v1.EC2NodeClass) {
			c.Spec.BlockDeviceMappings = []*v1.BlockDeviceMapping{{DeviceName: aws.String("/dev/xvda")}}
		}, "spec.blockDeviceMappings"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := al2023Class()
			if tt.change != nil {
				tt.change(c)
			}
			err := CheckClass(c)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("CheckClass = %v, want no error", err)
			case tt.want != "" && (capacity.KindOf(err) != capacity.Invalid || !strings.HasPrefix(err.Error(), tt.want)):
				t.Errorf("CheckClass = %v, want one of kind Invalid that begins with %q", err, tt.want)
			}
		})
	}
}

func TestClassTemplate(t *testing.T) {
	c := al2023Class()
	c.Spec.BlockDeviceMappings = []*v1.BlockDeviceMapping{{DeviceName: aws.String("/dev/xvda"), EBS: &v1.BlockDevice{
		VolumeSize: quantity("100G"), VolumeType: aws.String("gp3"), IOPS: aws.Int64(3000), Throughput: aws.Int64(125),
		Encrypted: aws.Bool(true), DeleteOnTermination: aws.Bool(true), KMSKeyID: aws.String("key"),
	}}}
	c.Spec.MetadataOptions = &v1.MetadataOptions{HTTPEndpoint: aws.String("enabled"), HTTPTokens: aws.String("optional"), HTTPPutResponseHopLimit: aws.Int64(2)}
	c.Spec.ConnectionTracking = &v1.ConnectionTracking{UDPTimeout: aws.Int32(40)}
	c.Spec.NetworkInterfaces = []*v1.NetworkInterface{{InterfaceType: "interface"}, {NetworkCardIndex: 1, DeviceIndex: 1, InterfaceType: "efa-only"}}
	c.Spec.CPUOptions = &v1.CPUOptions{NestedVirtualization: aws.String("enabled")}
	c.Spec.IPPrefixCount = aws.Int32(2)
	c.Status.InstanceProfile = "demo_1"
	c.Status.SecurityGroups = []v1.SecurityGroup{{ID: "sg-1", Name: "a"}, {ID: "sg-2", Name: "b"}}
	got, err := ClassTemplate(c)
	if err != nil {
		t.Fatal(err)
	}
	want := Template{
		InstanceProfile: "demo_1", SecurityGroups: []string{"sg-1", "sg-2"},
		BlockDevices: []BlockDevice{{
			DeviceName: "/dev/xvda", SizeGiB: 94, VolumeType: "gp3", IOPS: 3000, Throughput: 125, // 100G rounded up to GiB
			Encrypted: aws.Bool(true), DeleteOnTermination: aws.Bool(true), KMSKeyID: "key",
		}},
		Metadata:             MetadataOptions{HTTPEndpoint: "enabled", HTTPTokens: "optional", HTTPPutResponseHopLimit: 2},
		ConnectionTracking:   &ConnectionTracking{UDP: 40},
		NetworkInterfaces:    []NetworkInterface{{}, {Card: 1, Device: 1, EFAOnly: true}},
		NestedVirtualization: "enabled", IPPrefixes: 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("template (-want +got):\n%s", diff)
	}
}

func TestTemplateName(t *testing.T) {
	base := Template{ImageID: "ami-1", UserData: "x", Tags: map[string]string{"a": "b", "c": "d"}}
	name := TemplateName(base)
	if !strings.HasPrefix(name, "karpenter.k8s.aws/") || len(name) > 128 {
		t.Errorf("name %q is not Karpenter's prefix and at most 128 characters", name)
	}
	named := base
	named.Name = name
	if got := TemplateName(named); got != name {
		t.Errorf("the name depends on the name: %q, then %q", name, got)
	}
	for what, change := range map[string]func(*Template){
		"image":    func(t *Template) { t.ImageID = "ami-2" },
		"data":     func(t *Template) { t.UserData = "y" },
		"tags":     func(t *Template) { t.Tags = map[string]string{"a": "b"} },
		"spot":     func(t *Template) { t.Spot = true },
		"groups":   func(t *Template) { t.SecurityGroups = []string{"sg-1"} },
		"tracking": func(t *Template) { t.ConnectionTracking = &ConnectionTracking{UDP: 30} },
	} {
		other := base
		change(&other)
		if TemplateName(other) == name {
			t.Errorf("another %s makes the same name", what)
		}
	}
}

func TestAliasPaths(t *testing.T) {
	tests := []struct {
		family, version string
		want            []string
	}{
		{v1.AMIFamilyAL2023, "latest", []string{
			"/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/x86_64/standard/recommended/image_id",
			"/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/arm64/standard/recommended/image_id",
			"/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/x86_64/nvidia/recommended/image_id",
			"/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/arm64/nvidia/recommended/image_id",
			"/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/x86_64/neuron/recommended/image_id",
		}},
		{v1.AMIFamilyAL2023, "v20261101", []string{
			"/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/x86_64/standard/amazon-eks-node-al2023-x86_64-standard-1.37-v20261101/image_id",
			"/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/arm64/standard/amazon-eks-node-al2023-arm64-standard-1.37-v20261101/image_id",
			"/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/x86_64/nvidia/amazon-eks-node-al2023-x86_64-nvidia-1.37-v20261101/image_id",
			"/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/arm64/nvidia/amazon-eks-node-al2023-arm64-nvidia-1.37-v20261101/image_id",
			"/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/x86_64/neuron/amazon-eks-node-al2023-x86_64-neuron-1.37-v20261101/image_id",
		}},
		{v1.AMIFamilyAL2, "latest", []string{
			"/aws/service/eks/optimized-ami/1.37/amazon-linux-2/recommended/image_id",
			"/aws/service/eks/optimized-ami/1.37/amazon-linux-2-arm64/recommended/image_id",
			"/aws/service/eks/optimized-ami/1.37/amazon-linux-2-gpu/recommended/image_id",
		}},
		{v1.AMIFamilyAL2, "v20240625", []string{
			"/aws/service/eks/optimized-ami/1.37/amazon-linux-2/amazon-eks-node-1.37-v20240625/image_id",
			"/aws/service/eks/optimized-ami/1.37/amazon-linux-2-arm64/amazon-eks-arm64-node-1.37-v20240625/image_id",
			"/aws/service/eks/optimized-ami/1.37/amazon-linux-2-gpu/amazon-eks-gpu-node-1.37-v20240625/image_id",
		}},
		{v1.AMIFamilyWindows2022, "latest", []string{
			"/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.37/image_id",
		}},
		{v1.AMIFamilyBottlerocket, "v1.50.0", []string{
			"/aws/service/bottlerocket/aws-k8s-1.37/x86_64/1.50.0/image_id",
			"/aws/service/bottlerocket/aws-k8s-1.37/arm64/1.50.0/image_id",
			"/aws/service/bottlerocket/aws-k8s-1.37-nvidia/x86_64/1.50.0/image_id",
			"/aws/service/bottlerocket/aws-k8s-1.37-nvidia/arm64/1.50.0/image_id",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.family+"@"+tt.version, func(t *testing.T) {
			paths, err := aliasPaths(tt.family, tt.version, "1.37")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range paths {
				got = append(got, p.path)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckAlias(t *testing.T) {
	tests := []struct{ family, version, kubernetes, want string }{ // want is empty if it is valid
		{v1.AMIFamilyAL2023, "v20261101", "1.37", ""},
		{v1.AMIFamilyAL2, "latest", "1.32", ""},
		{v1.AMIFamilyAL2, "latest", "1.33", "AL2 aliases are no longer supported on EKS 1.33+"},
		{v1.AMIFamilyWindows2022, "latest", "1.31", ""},
		{v1.AMIFamilyWindows2022, "v1", "1.37", "use windows2022@latest"},
		{v1.AMIFamilyWindows2025, "latest", "1.34", "Windows Server 2025 requires EKS version 1.35 or higher, current version: 1.34"},
		{v1.AMIFamilyWindows2025, "latest", "1.35", ""},
	}
	for _, tt := range tests {
		err := checkAlias(tt.family, tt.version, tt.kubernetes)
		if tt.want == "" && err != nil || tt.want != "" && (capacity.KindOf(err) != capacity.Invalid || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s@%s on %s: err = %v, want %q", tt.family, tt.version, tt.kubernetes, err, tt.want)
		}
	}
}

func TestBetterImage(t *testing.T) {
	at := func(day int) time.Time { return time.Date(2026, 11, day, 0, 0, 0, 0, time.UTC) }
	tests := []struct {
		name string
		a, b Image
		want int
	}{
		{"newer", Image{Created: at(2)}, Image{Created: at(1)}, -1},
		{"older but not deprecated", Image{Created: at(1)}, Image{Created: at(2), Deprecated: true}, -1},
		{"both deprecated, newer", Image{Created: at(2), Deprecated: true}, Image{Created: at(1), Deprecated: true}, -1},
		{"same age, greater name", Image{Created: at(1), Name: "b"}, Image{Created: at(1), Name: "a"}, -1},
		{"equal", Image{Created: at(1), Name: "a"}, Image{Created: at(1), Name: "a"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := betterImage(tt.a, tt.b); got != tt.want {
				t.Errorf("betterImage(a, b) = %d, want %d", got, tt.want)
			}
			if got := betterImage(tt.b, tt.a); got != -tt.want {
				t.Errorf("betterImage(b, a) = %d, want %d", got, -tt.want)
			}
		})
	}
}

func TestNewImages(t *testing.T) {
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	c := &Client{opts: Options{Clock: clocktesting.NewFakePassiveClock(now)}}
	image := ec2types.Image{
		ImageId: aws.String("ami-1"), Name: aws.String("n"), Architecture: ec2types.ArchitectureValuesX8664,
		CreationDate: aws.String("2026-11-01T00:00:00.000Z"), DeprecationTime: aws.String("2026-11-30T00:00:00.000Z"),
	}
	exists := []corev1.NodeSelectorRequirement{{Key: "k", Operator: corev1.NodeSelectorOpExists}}
	got := c.newImages(image, map[string][][]corev1.NodeSelectorRequirement{"ami-1": {nil, exists}})
	arch := corev1.NodeSelectorRequirement{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}}
	created := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	want := []Image{
		{ID: "ami-1", Name: "n", Created: created, Deprecated: true, Requirements: []corev1.NodeSelectorRequirement{arch}},
		{ID: "ami-1", Name: "n", Created: created, Deprecated: true, Requirements: []corev1.NodeSelectorRequirement{arch, exists[0]}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	image.Architecture = ec2types.ArchitectureValuesI386
	if got := c.newImages(image, nil); got != nil {
		t.Errorf("a 32-bit image makes %v, want nothing", got)
	}
}

func TestProfileName(t *testing.T) {
	c := &Client{opts: Options{ClusterName: "demo", Region: "us-east-1"}}
	class := &v1.EC2NodeClass{}
	class.Name, class.UID = "default", "u-1"
	name := c.profileName(class, "role")
	if !strings.HasPrefix(name, "demo_") || strings.Trim(name[5:], "0123456789") != "" {
		t.Errorf("name %q is not the cluster and a number", name)
	}
	if c.profileName(class, "role") != name {
		t.Error("the name changes from call to call")
	}
	if c.profileName(class, "other") == name {
		t.Error("another role has the same name")
	}
	if got, want := c.profilePath(class), "/karpenter/us-east-1/demo/u-1/"; got != want {
		t.Errorf("path = %q, want %q", got, want)
	}
	if got := RoleName("path/to/role"); got != "role" {
		t.Errorf("roleName = %q, want role", got)
	}
}

func TestPricingRegion(t *testing.T) {
	for region, want := range map[string]string{
		"us-west-2": "us-east-1", "sa-east-1": "us-east-1", "eu-west-3": "eu-central-1", "ap-northeast-1": "ap-south-1", "cn-north-1": "cn-northwest-1",
	} {
		if got := pricingRegion(region); got != want {
			t.Errorf("pricingRegion(%q) = %q, want %q", region, got, want)
		}
	}
}

func TestProviderID(t *testing.T) {
	i := Instance{ID: "i-1", Zone: "us-east-1a"}
	if got, want := i.ProviderID(), "aws:///us-east-1a/i-1"; got != want {
		t.Errorf("ProviderID = %q, want %q", got, want)
	}
}

// TestBlockDevicesRefuseToWrap checks that numbers beyond what EC2's API can say stay absurd instead of turning into small ones.
func TestBlockDevicesRefuseToWrap(t *testing.T) {
	class := al2023Class()
	class.Spec.BlockDeviceMappings = []*v1.BlockDeviceMapping{{DeviceName: aws.String("/dev/xvda"), EBS: &v1.BlockDevice{
		IOPS: aws.Int64(1<<32 + 3000), Throughput: aws.Int64(1<<32 + 125), VolumeSize: quantity("9223372036854775807"),
	}}}
	got, err := BlockDevices(class)
	if err != nil {
		t.Fatal(err)
	}
	if b := got[0]; b.IOPS != math.MaxInt32 || b.Throughput != math.MaxInt32 || b.SizeGiB != math.MaxInt32 {
		t.Errorf("IOPS %d, throughput %d, size %d GiB, want %d of each", b.IOPS, b.Throughput, b.SizeGiB, math.MaxInt32)
	}
}
