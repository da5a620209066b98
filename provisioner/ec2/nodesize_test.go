// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// info is an answer of DescribeInstanceTypes with what sizes depend on.
func info(name string, arch ec2types.ArchitectureType, vcpus int32, mem int64, enis, ips int32) ec2types.InstanceTypeInfo {
	return ec2types.InstanceTypeInfo{
		InstanceType:          ec2types.InstanceType(name),
		Hypervisor:            ec2types.InstanceTypeHypervisorNitro,
		SupportedUsageClasses: []ec2types.UsageClassType{"on-demand", "spot", "capacity-block"},
		VCpuInfo:              &ec2types.VCpuInfo{DefaultVCpus: aws.Int32(vcpus)},
		MemoryInfo:            &ec2types.MemoryInfo{SizeInMiB: aws.Int64(mem)},
		ProcessorInfo: &ec2types.ProcessorInfo{
			Manufacturer: aws.String("Intel"), SupportedArchitectures: []ec2types.ArchitectureType{arch}, SustainedClockSpeedInGhz: aws.Float64(3.1),
		},
		EbsInfo: &ec2types.EbsInfo{
			EbsOptimizedSupport: ec2types.EbsOptimizedSupportDefault,
			EbsOptimizedInfo:    &ec2types.EbsOptimizedInfo{MaximumBandwidthInMbps: aws.Int32(4750)},
		},
		NetworkInfo: &ec2types.NetworkInfo{
			DefaultNetworkCardIndex: aws.Int32(0), Ipv4AddressesPerInterface: aws.Int32(ips), NetworkPerformance: aws.String("Up to 10 Gigabit"),
			EnaSupport:   ec2types.EnaSupportRequired,
			NetworkCards: []ec2types.NetworkCardInfo{{NetworkCardIndex: aws.Int32(0), MaximumNetworkInterfaces: aws.Int32(enis)}},
		},
	}
}

func m5Large() ec2types.InstanceTypeInfo { return info("m5.large", "x86_64", 2, 8192, 3, 10) }

func g4dn() ec2types.InstanceTypeInfo {
	i := info("g4dn.8xlarge", "x86_64", 32, 131072, 4, 15)
	i.GpuInfo = &ec2types.GpuInfo{Gpus: []ec2types.GpuDeviceInfo{{
		Name: aws.String("T4"), Manufacturer: aws.String("NVIDIA"), Count: aws.Int32(1), MemoryInfo: &ec2types.GpuDeviceMemoryInfo{SizeInMiB: aws.Int32(16384)},
	}}}
	i.InstanceStorageInfo = &ec2types.InstanceStorageInfo{NvmeSupport: ec2types.EphemeralNvmeSupportRequired, TotalSizeInGB: aws.Int64(900)}
	i.NetworkInfo.EfaInfo = &ec2types.EfaInfo{MaximumEfaInterfaces: aws.Int32(1)}
	return i
}

func facts(t testing.TB, i ec2types.InstanceTypeInfo) *typeFacts {
	t.Helper()
	tab, err := newTables()
	if err != nil {
		t.Fatal(err)
	}
	f, ok := newTypeFacts(i, "us-east-1", tab)
	if !ok {
		t.Fatalf("type %q is refused", i.InstanceType)
	}
	return f
}

func al2023Class() *v1.EC2NodeClass {
	return &v1.EC2NodeClass{Spec: v1.EC2NodeClassSpec{AMISelectorTerms: []v1.AMISelectorTerm{{Alias: "al2023@latest"}}}}
}

// The figures without a class's own settings are those of Karpenter's reference of instance types.
func TestNodeSize(t *testing.T) {
	const mi, gi = int64(mib), int64(1 << 30)
	neuron := info("trn1.2xlarge", "x86_64", 8, 32768, 4, 15)
	neuron.NeuronInfo = &ec2types.NeuronInfo{NeuronDevices: []ec2types.NeuronDeviceInfo{{
		Name: aws.String("Trainium"), Count: aws.Int32(1), CoreInfo: &ec2types.NeuronDeviceCoreInfo{Count: aws.Int32(2)},
	}}}
	tests := []struct {
		name      string
		info      ec2types.InstanceTypeInfo
		class     func(*v1.EC2NodeClass)
		size      sizing
		wantCap   capacity.Resources
		wantAlloc capacity.Resources
	}{
		{
			name: "m5.large", info: m5Large(),
			wantCap: capacity.Resources{CPU: 2000, Memory: 7577 * mi, Ephemeral: 20 * gi, Pods: 29, Extended: []capacity.Quantity{{Name: v1.ResourceAWSPodENI, Value: 9}}},
			wantAlloc: capacity.Resources{CPU: 1930, Memory: 6903 * mi, Ephemeral: 17 * gi, Pods: 29, Extended: []capacity.Quantity{
				{Name: v1.ResourceAWSPodENI, Value: 9},
			}},
		},
		{
			name: "arm64 keeps 64 MiB more", info: info("c6g.large", "arm64", 2, 4096, 3, 10),
			wantCap: capacity.Resources{CPU: 2000, Memory: 3729 * mi, Ephemeral: 20 * gi, Pods: 29, Extended: []capacity.Quantity{{Name: v1.ResourceAWSPodENI, Value: 9}}},
			wantAlloc: capacity.Resources{CPU: 1930, Memory: 3055 * mi, Ephemeral: 17 * gi, Pods: 29, Extended: []capacity.Quantity{
				{Name: v1.ResourceAWSPodENI, Value: 9},
			}},
		},
		{
			name: "GPU and instance store", info: g4dn(),
			class: func(c *v1.EC2NodeClass) { p := v1.InstanceStorePolicyRAID0; c.Spec.InstanceStorePolicy = &p },
			wantCap: capacity.Resources{CPU: 32000, Memory: 121241 * mi, Ephemeral: 900e9, Pods: 58, Extended: []capacity.Quantity{
				{Name: v1.ResourceNVIDIAGPU, Value: 1}, {Name: v1.ResourceEFA, Value: 1}, {Name: v1.ResourceAWSPodENI, Value: 58},
			}},
			wantAlloc: capacity.Resources{CPU: 31850, Memory: 120248 * mi, Ephemeral: 900e9 - 90e9 - gi, Pods: 58, Extended: []capacity.Quantity{
				{Name: v1.ResourceNVIDIAGPU, Value: 1}, {Name: v1.ResourceEFA, Value: 1}, {Name: v1.ResourceAWSPodENI, Value: 58},
			}},
		},
		{
			name: "neuron devices and cores", info: neuron,
			wantCap: capacity.Resources{CPU: 8000, Memory: 30310 * mi, Ephemeral: 20 * gi, Pods: 58, Extended: []capacity.Quantity{
				{Name: v1.ResourceAWSNeuron, Value: 1}, {Name: v1.ResourceAWSNeuronCore, Value: 2}, {Name: v1.ResourceAWSPodENI, Value: 17},
			}},
			wantAlloc: capacity.Resources{CPU: 7910, Memory: 29317 * mi, Ephemeral: 17 * gi, Pods: 58, Extended: []capacity.Quantity{
				{Name: v1.ResourceAWSNeuron, Value: 1}, {Name: v1.ResourceAWSNeuronCore, Value: 2}, {Name: v1.ResourceAWSPodENI, Value: 17},
			}},
		},
		{
			name: "the class's own kubelet settings", info: info("x9.large", "x86_64", 2, 8192, 3, 10),
			class: func(c *v1.EC2NodeClass) {
				c.Spec.Kubelet = &v1.KubeletConfiguration{
					MaxPods: aws.Int32(110), PodsPerCore: aws.Int32(20),
					KubeReserved:   map[string]string{"memory": "1Gi", "pid": "100"},
					SystemReserved: map[string]string{"cpu": "100m", "ephemeral-storage": "2Gi"},
					EvictionHard:   map[string]string{"memory.available": "5%", "nodefs.available": "100%"},
				}
			},
			wantCap:   capacity.Resources{CPU: 2000, Memory: 7577 * mi, Ephemeral: 20 * gi, Pods: 40},
			wantAlloc: capacity.Resources{CPU: 1830, Memory: 7577*mi - gi - 397253018, Ephemeral: 17 * gi, Pods: 40},
		},
		{
			name: "volume, reserved interfaces and memory overhead", info: info("x9.large", "x86_64", 2, 8192, 3, 10),
			class: func(c *v1.EC2NodeClass) {
				c.Spec.BlockDeviceMappings = []*v1.BlockDeviceMapping{
					{DeviceName: aws.String("/dev/xvdb"), EBS: &v1.BlockDevice{VolumeSize: quantity("500Gi")}},
					{DeviceName: aws.String("/dev/xvda"), EBS: &v1.BlockDevice{VolumeSize: quantity("100Gi")}},
				}
			},
			size:    sizing{vmOverhead: 0.05, reservedENIs: 1},
			wantCap: capacity.Resources{CPU: 2000, Memory: 7782 * mi, Ephemeral: 100 * gi, Pods: 20},
			// The image reserves memory for the pods of all its interfaces: it does not know of reserved ones.
			wantAlloc: capacity.Resources{CPU: 1930, Memory: 7108 * mi, Ephemeral: 89 * gi, Pods: 20},
		},
		{
			name: "EFA devices are those the class lists", info: g4dn(),
			class: func(c *v1.EC2NodeClass) {
				c.Spec.NetworkInterfaces = []*v1.NetworkInterface{{InterfaceType: v1.InterfaceTypeInterface}, {DeviceIndex: 1, InterfaceType: v1.InterfaceTypeEFAOnly}}
			},
			wantCap: capacity.Resources{CPU: 32000, Memory: 121241 * mi, Ephemeral: 20 * gi, Pods: 44, Extended: []capacity.Quantity{
				{Name: v1.ResourceNVIDIAGPU, Value: 1}, {Name: v1.ResourceEFA, Value: 1}, {Name: v1.ResourceAWSPodENI, Value: 58},
			}},
			wantAlloc: capacity.Resources{CPU: 31850, Memory: 120402 * mi, Ephemeral: 17 * gi, Pods: 44, Extended: []capacity.Quantity{
				{Name: v1.ResourceNVIDIAGPU, Value: 1}, {Name: v1.ResourceEFA, Value: 1}, {Name: v1.ResourceAWSPodENI, Value: 58},
			}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			class := al2023Class()
			if tt.class != nil {
				tt.class(class)
			}
			shape, err := newNodeShape(class)
			if err != nil {
				t.Fatal(err)
			}
			if tt.size == (sizing{}) {
				tt.size.vmOverhead = DefaultVMMemoryOverhead
			}
			f := facts(t, tt.info)
			got := tt.size.capacityOf(f, shape)
			if diff := cmp.Diff(tt.wantCap, got); diff != "" {
				t.Errorf("capacity (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.wantAlloc, got.Sub(overheadOf(f, shape, got))); diff != "" {
				t.Errorf("allocatable (-want +got):\n%s", diff)
			}
		})
	}
}

func quantity(s string) *resource.Quantity { q := resource.MustParse(s); return &q }

func TestReservedCPU(t *testing.T) {
	for cores, want := range map[int64]int64{1: 60, 2: 70, 4: 80, 8: 90, 16: 110, 48: 190, 96: 310} {
		if got := reservedCPU(cores * 1000); got != want {
			t.Errorf("reservedCPU(%d cores) = %dm, want %dm", cores, got, want)
		}
	}
}

func TestTypeLabels(t *testing.T) {
	got := facts(t, g4dn())
	want := map[string]string{
		corev1.LabelInstanceTypeStable: "g4dn.8xlarge", corev1.LabelArchStable: "amd64", corev1.LabelTopologyRegion: "us-east-1",
		v1.LabelInstanceCPU: "32", v1.LabelInstanceMemory: "131072", v1.LabelInstanceHypervisor: "nitro",
		v1.LabelInstanceEncryptionInTransitSupported: "false", v1.LabelInstanceCapabilityFlex: "false",
		v1.LabelInstanceCategory: "g", v1.LabelInstanceGeneration: "4", v1.LabelInstanceFamily: "g4dn", v1.LabelInstanceSize: "8xlarge",
		v1.LabelInstanceLocalNVME: "900", v1.LabelInstanceCPUManufacturer: "intel", v1.LabelInstanceCPUSustainedClockSpeedMhz: "3100",
		v1.LabelInstanceEBSBandwidth: "4750", v1.LabelInstanceNetworkBandwidth: "50000",
		v1.LabelInstanceGPUName: "t4", v1.LabelInstanceGPUManufacturer: "nvidia", v1.LabelInstanceGPUCount: "1", v1.LabelInstanceGPUMemory: "16384",
	}
	if diff := cmp.Diff(want, got.labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	wantAbsent := []string{
		corev1.LabelWindowsBuild, v1.LabelInstanceAcceleratorName, v1.LabelInstanceAcceleratorManufacturer, v1.LabelInstanceAcceleratorCount,
		v1.LabelPlacementGroupID, v1.LabelPlacementGroupPartition,
	}
	if diff := cmp.Diff(wantAbsent, got.absent); diff != "" {
		t.Errorf("absent (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"on-demand", "spot"}, got.usage); diff != "" {
		t.Errorf("capacity types (-want +got):\n%s", diff)
	}
}

func TestNameLabels(t *testing.T) {
	tests := []struct{ name, category, generation, family, size, flex string }{
		{"m7i-flex.large", "m", "7", "m7i-flex", "large", "true"},
		{"u-6tb1.metal", "u", "1", "u-6tb1", "metal", "false"},
		{"inf2.24xlarge", "inf", "2", "inf2", "24xlarge", "false"},
		{"mac2-m2pro.metal", "mac", "2", "mac2-m2pro", "metal", "false"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := facts(t, info(tt.name, "x86_64", 2, 8192, 3, 10)).labels
			got := []string{l[v1.LabelInstanceCategory], l[v1.LabelInstanceGeneration], l[v1.LabelInstanceFamily], l[v1.LabelInstanceSize], l[v1.LabelInstanceCapabilityFlex]}
			if diff := cmp.Diff([]string{tt.category, tt.generation, tt.family, tt.size, tt.flex}, got); diff != "" {
				t.Errorf("category, generation, family, size, flex (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBandwidthOfNewTypes(t *testing.T) {
	i := info("zz9.large", "x86_64", 2, 8192, 3, 10)
	i.NetworkInfo.NetworkCards[0].BaselineBandwidthInGbps = aws.Float64(0.75)
	if got := facts(t, i).labels[v1.LabelInstanceNetworkBandwidth]; got != "750" {
		t.Errorf("bandwidth = %q, want what EC2 says of the card, 750", got)
	}
	i.NetworkInfo.NetworkPerformance = aws.String("Moderate")
	if got, ok := facts(t, i).labels[v1.LabelInstanceNetworkBandwidth]; ok {
		t.Errorf("bandwidth = %q, want none where AWS publishes a word", got)
	}
}

// A Windows node takes kubelet's default of pods, whose addresses are a resource, on a volume of its own size.
func TestWindowsNodeSize(t *testing.T) {
	class := &v1.EC2NodeClass{Spec: v1.EC2NodeClassSpec{AMISelectorTerms: []v1.AMISelectorTerm{{Alias: "windows2022@latest"}}}}
	s, err := newNodeShape(class)
	if err != nil {
		t.Fatal(err)
	}
	got := sizing{vmOverhead: DefaultVMMemoryOverhead}.capacityOf(facts(t, m5Large()), s)
	want := capacity.Resources{CPU: 2000, Memory: 7577 * mib, Ephemeral: 50 << 30, Pods: 110, Extended: []capacity.Quantity{
		{Name: v1.ResourcePrivateIPv4Address, Value: 9}, {Name: v1.ResourceAWSPodENI, Value: 9},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("capacity (-want +got):\n%s", diff)
	}
	labels, absent := s.labels(facts(t, m5Large()))
	if labels[corev1.LabelOSStable] != "windows" || labels[corev1.LabelWindowsBuild] != "10.0.20348" || slices.Contains(absent, corev1.LabelWindowsBuild) {
		t.Errorf("labels %v, absent %v; want those of Windows Server 2022", labels, absent)
	}
}
