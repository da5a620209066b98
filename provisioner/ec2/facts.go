// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// typeFacts is what is known about an instance type before any node class is looked at.
type typeFacts struct {
	name     string
	arch     string // amd64 or arm64
	labels   map[string]string
	absent   []string
	vcpus    int64
	memory   int64 // bytes, as EC2 advertises it
	usage    []string
	storeGB  int64 // instance store, 0 if none
	ipv4     int64 // addresses per network interface
	cards    []card
	primary  int // index into cards of the default network card
	efas     int64
	ena      bool
	nested   bool // nested virtualisation can be turned on
	nitro    bool
	prefixes bool // interfaces can have prefixes: types on Nitro, bare metal included
	placing  []ec2types.PlacementGroupStrategy
	extended []capacity.Quantity // resources that do not depend on the class, sorted by name
}

type card struct {
	index      int32
	interfaces int64
}

// labels an instance type may lack. A node of such a type does not carry them.
var optionalLabels = [...]string{ //nolint:gochecknoglobals // a table, never written
	corev1.LabelWindowsBuild,
	v1.LabelInstanceCategory, v1.LabelInstanceGeneration, v1.LabelInstanceFamily, v1.LabelInstanceSize,
	v1.LabelInstanceCPUManufacturer, v1.LabelInstanceCPUSustainedClockSpeedMhz,
	v1.LabelInstanceLocalNVME, v1.LabelInstanceEBSBandwidth, v1.LabelInstanceNetworkBandwidth,
	v1.LabelInstanceGPUName, v1.LabelInstanceGPUManufacturer, v1.LabelInstanceGPUCount, v1.LabelInstanceGPUMemory,
	v1.LabelInstanceAcceleratorName, v1.LabelInstanceAcceleratorManufacturer, v1.LabelInstanceAcceleratorCount,
	v1.LabelPlacementGroupID, v1.LabelPlacementGroupPartition,
}

// generationPattern takes category and generation out of a name: c7g.large is c and 7, u-6tb1.metal is u and 1.
var generationPattern = regexp.MustCompile(`(^[a-z]+)(\-[0-9]+tb)?([0-9]+).*\.`)

// newTypeFacts reads one answer of DescribeInstanceTypes; ok is false for a type no supported node can run on
// (32-bit or macOS only, or an answer without the fields sizes are computed from).
func newTypeFacts(info ec2types.InstanceTypeInfo, region string, t tables) (*typeFacts, bool) {
	arch := archOf(info)
	if arch == "" || info.VCpuInfo == nil || info.VCpuInfo.DefaultVCpus == nil || info.MemoryInfo == nil ||
		info.MemoryInfo.SizeInMiB == nil || info.NetworkInfo == nil {
		return nil, false
	}
	f := &typeFacts{
		name:   string(info.InstanceType),
		arch:   arch,
		vcpus:  int64(*info.VCpuInfo.DefaultVCpus),
		memory: *info.MemoryInfo.SizeInMiB << 20,
		ipv4:   int64(aws.ToInt32(info.NetworkInfo.Ipv4AddressesPerInterface)),
		ena:    info.NetworkInfo.EnaSupport != ec2types.EnaSupportUnsupported,
		nitro:  info.Hypervisor == ec2types.InstanceTypeHypervisorNitro,

		prefixes: info.Hypervisor == ec2types.InstanceTypeHypervisorNitro || info.Hypervisor == "",
	}
	for _, u := range info.SupportedUsageClasses {
		if u == ec2types.UsageClassTypeOnDemand || u == ec2types.UsageClassTypeSpot {
			f.usage = append(f.usage, string(u))
		}
	}
	if info.InstanceStorageInfo != nil {
		f.storeGB = aws.ToInt64(info.InstanceStorageInfo.TotalSizeInGB)
	}
	if info.ProcessorInfo != nil {
		f.nested = slices.Contains(info.ProcessorInfo.SupportedFeatures, ec2types.SupportedAdditionalProcessorFeatureNestedVirtualization)
	}
	if info.PlacementGroupInfo != nil {
		f.placing = info.PlacementGroupInfo.SupportedStrategies
	}
	f.readNetwork(info.NetworkInfo)
	f.readExtended(info, t)
	f.readLabels(info, region, t)
	return f, true
}

func archOf(info ec2types.InstanceTypeInfo) string {
	if info.ProcessorInfo == nil {
		return ""
	}
	for _, a := range info.ProcessorInfo.SupportedArchitectures {
		switch a {
		case ec2types.ArchitectureTypeX8664:
			return karpv1.ArchitectureAmd64
		case ec2types.ArchitectureTypeArm64:
			return karpv1.ArchitectureArm64
		}
	}
	return ""
}

func (f *typeFacts) readNetwork(n *ec2types.NetworkInfo) {
	for i, c := range n.NetworkCards {
		f.cards = append(f.cards, card{index: aws.ToInt32(c.NetworkCardIndex), interfaces: int64(aws.ToInt32(c.MaximumNetworkInterfaces))})
		if aws.ToInt32(c.NetworkCardIndex) == aws.ToInt32(n.DefaultNetworkCardIndex) {
			f.primary = i
		}
	}
	if n.EfaInfo != nil {
		f.efas = int64(aws.ToInt32(n.EfaInfo.MaximumEfaInterfaces))
	}
}

func (f *typeFacts) readExtended(info ec2types.InstanceTypeInfo, t tables) {
	add := func(name corev1.ResourceName, n int64) {
		if n > 0 {
			f.extended = append(f.extended, capacity.Quantity{Name: name, Value: n})
		}
	}
	add(v1.ResourceAMDGPU, gpus(info, "AMD"))
	if info.NeuronInfo != nil && len(info.NeuronInfo.NeuronDevices) > 0 {
		devices := int64(0)
		for _, d := range info.NeuronInfo.NeuronDevices {
			devices += int64(aws.ToInt32(d.Count))
		}
		first := info.NeuronInfo.NeuronDevices[0]
		add(v1.ResourceAWSNeuron, devices)
		if first.CoreInfo != nil {
			add(v1.ResourceAWSNeuronCore, int64(aws.ToInt32(first.Count))*int64(aws.ToInt32(first.CoreInfo.Count)))
		}
	}
	add(v1.ResourceHabanaGaudi, gpus(info, "Habana"))
	add(v1.ResourceNVIDIAGPU, gpus(info, "NVIDIA"))
	add(v1.ResourceAWSPodENI, t.branchInterfaces[f.name])
	slices.SortFunc(f.extended, byResource)
}

func byResource(a, b capacity.Quantity) int { return strings.Compare(string(a.Name), string(b.Name)) }

func gpus(info ec2types.InstanceTypeInfo, manufacturer string) int64 {
	n := int64(0)
	if info.GpuInfo != nil {
		for _, g := range info.GpuInfo.Gpus {
			if aws.ToString(g.Manufacturer) == manufacturer {
				n += int64(aws.ToInt32(g.Count))
			}
		}
	}
	return n
}

// readLabels sets the labels of Karpenter v1 (website, reference/instance-types), all but those an offering or a class decides.
func (f *typeFacts) readLabels(info ec2types.InstanceTypeInfo, region string, t tables) {
	f.labels = map[string]string{
		corev1.LabelInstanceTypeStable:               f.name,
		corev1.LabelArchStable:                       f.arch,
		corev1.LabelTopologyRegion:                   region,
		v1.LabelInstanceCPU:                          strconv.FormatInt(f.vcpus, 10),
		v1.LabelInstanceMemory:                       strconv.FormatInt(f.memory>>20, 10),
		v1.LabelInstanceHypervisor:                   string(info.Hypervisor),
		v1.LabelInstanceEncryptionInTransitSupported: strconv.FormatBool(aws.ToBool(info.NetworkInfo.EncryptionInTransitSupported)),
		v1.LabelInstanceCapabilityFlex:               "false",
	}
	if m := generationPattern.FindStringSubmatch(f.name); m != nil {
		f.labels[v1.LabelInstanceCategory], f.labels[v1.LabelInstanceGeneration] = m[1], m[3]
	}
	if family, size, ok := strings.Cut(f.name, "."); ok {
		f.labels[v1.LabelInstanceFamily], f.labels[v1.LabelInstanceSize] = family, size
		f.labels[v1.LabelInstanceCapabilityFlex] = strconv.FormatBool(strings.Contains(family, "-flex"))
	}
	if s := info.InstanceStorageInfo; s != nil && s.NvmeSupport != ec2types.EphemeralNvmeSupportUnsupported && s.TotalSizeInGB != nil {
		f.labels[v1.LabelInstanceLocalNVME] = strconv.FormatInt(*s.TotalSizeInGB, 10)
	}
	if p := info.ProcessorInfo; p != nil {
		f.labels[v1.LabelInstanceCPUManufacturer] = kebab(aws.ToString(p.Manufacturer))
		f.labels[v1.LabelInstanceCPUSustainedClockSpeedMhz] = strconv.Itoa(int(math.Round(aws.ToFloat64(p.SustainedClockSpeedInGhz) * 1000)))
	}
	if e := info.EbsInfo; e != nil && e.EbsOptimizedInfo != nil && e.EbsOptimizedSupport == ec2types.EbsOptimizedSupportDefault {
		f.labels[v1.LabelInstanceEBSBandwidth] = strconv.Itoa(int(aws.ToInt32(e.EbsOptimizedInfo.MaximumBandwidthInMbps)))
	}
	if mbit, ok := bandwidth(info, t); ok {
		f.labels[v1.LabelInstanceNetworkBandwidth] = strconv.FormatInt(mbit, 10)
	}
	f.readAcceleratorLabels(info)
	for _, k := range optionalLabels {
		if _, ok := f.labels[k]; !ok {
			f.absent = append(f.absent, k)
		}
	}
}

func (f *typeFacts) readAcceleratorLabels(info ec2types.InstanceTypeInfo) {
	if info.GpuInfo != nil && len(info.GpuInfo.Gpus) == 1 {
		g := info.GpuInfo.Gpus[0]
		f.labels[v1.LabelInstanceGPUName] = kebab(aws.ToString(g.Name))
		f.labels[v1.LabelInstanceGPUManufacturer] = kebab(aws.ToString(g.Manufacturer))
		f.labels[v1.LabelInstanceGPUCount] = strconv.Itoa(int(aws.ToInt32(g.Count)))
		if g.MemoryInfo != nil {
			f.labels[v1.LabelInstanceGPUMemory] = strconv.Itoa(int(aws.ToInt32(g.MemoryInfo.SizeInMiB)))
		}
	}
	accelerator := func(name, manufacturer string, count *int32) {
		f.labels[v1.LabelInstanceAcceleratorName] = kebab(name)
		f.labels[v1.LabelInstanceAcceleratorManufacturer] = kebab(manufacturer)
		f.labels[v1.LabelInstanceAcceleratorCount] = strconv.Itoa(int(aws.ToInt32(count)))
	}
	switch {
	case info.NeuronInfo != nil:
		if len(info.NeuronInfo.NeuronDevices) == 1 {
			d := info.NeuronInfo.NeuronDevices[0]
			accelerator(aws.ToString(d.Name), "aws", d.Count)
		}
	case info.InferenceAcceleratorInfo != nil && len(info.InferenceAcceleratorInfo.Accelerators) == 1:
		a := info.InferenceAcceleratorInfo.Accelerators[0]
		accelerator(aws.ToString(a.Name), aws.ToString(a.Manufacturer), a.Count)
	}
}

// bandwidth is the published baseline in Mbit/s; for a type newer than the table what EC2 says about its cards, unless
// AWS states it in words only ("Moderate").
func bandwidth(info ec2types.InstanceTypeInfo, t tables) (int64, bool) {
	if v, ok := t.bandwidth[string(info.InstanceType)]; ok {
		return v, true
	}
	if !strings.Contains(aws.ToString(info.NetworkInfo.NetworkPerformance), "Gigabit") {
		return 0, false
	}
	gbit := 0.0
	for _, c := range info.NetworkInfo.NetworkCards {
		gbit += aws.ToFloat64(c.BaselineBandwidthInGbps)
	}
	return int64(math.Round(gbit * 1000)), gbit > 0
}

func kebab(s string) string { return strings.ToLower(strings.ReplaceAll(s, " ", "-")) }
