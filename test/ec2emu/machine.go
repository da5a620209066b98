// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/slipway-sh/slipway/test/ec2emu/userdata"
)

// Machine is a booted instance as its kubelet sees itself.
type Machine struct {
	InstanceID, InstanceType, Zone, Region, Arch, ImageID string
	// OS is linux or windows.
	OS         string
	NodeName   string // private DNS name, as the kubelet of an EKS node registers
	InternalIP string
	ProviderID string            // aws:///<zone>/<instance id>
	Labels     map[string]string // only what user data asks for
	Taints     []corev1.Taint    // from user data
	// Capacity and Allocatable are what the machine really has, from the facts
	// of its type and its own kubelet configuration.
	Capacity, Allocatable corev1.ResourceList
	// ReadyAfter is real time from joining until the kubelet reports Ready.
	ReadyAfter time.Duration
	// Images are those user data has the machine pull while it boots.
	Images []string
}

const mib, gib = int64(1) << 20, int64(1) << 30

// kubeletPods is the kubelet's own default for maxPods.
const kubeletPods = 110

func (e *Emulator) newMachine(i *instance, c *userdata.Config) Machine {
	arch := "amd64"
	if i.offer.arch() == "arm64" {
		arch = "arm64"
	}
	capacity := nodeCapacity(i, c)
	labels, system := maps.Clone(c.Labels), "linux"
	if i.image.Family == Windows {
		if labels == nil {
			labels = map[string]string{}
		}
		labels[corev1.LabelWindowsBuild], system = i.image.windowsBuild(), "windows"
	}
	return Machine{
		OS:         system,
		InstanceID: i.id, InstanceType: i.offer.name, Zone: i.subnet.Zone, Region: e.opts.Region, Arch: arch, ImageID: i.image.ID,
		NodeName: i.dnsName, InternalIP: i.address.String(), ProviderID: fmt.Sprintf("aws:///%s/%s", i.subnet.Zone, i.id),
		Labels: labels, Taints: slices.Clone(c.Taints),
		Capacity: capacity, Allocatable: allocatable(i, c, capacity), ReadyAfter: i.readyTime,
		Images: c.Images,
	}
}

// nodeCapacity is what the kubelet finds on the machine.
func nodeCapacity(i *instance, c *userdata.Config) corev1.ResourceList {
	info := i.offer.info
	cpus := int64(aws.ToInt32(info.VCpuInfo.DefaultVCpus))
	pods := eniPods(i.offer)
	if i.image.Family == Windows {
		pods = kubeletPods
	}
	if c.MaxPods > 0 {
		pods = int64(c.MaxPods)
	}
	if c.PodsPerCore > 0 {
		pods = min(pods, int64(c.PodsPerCore)*cpus)
	}
	out := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(cpus, resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(visibleMemory(i.offer), resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(pods, resource.DecimalSI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(diskBytes(i, c), resource.BinarySI),
	}
	for name, count := range devices(i.offer) {
		out[name] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	if i.image.Family == Windows {
		// The VPC resource controller's: the addresses of one interface but its own.
		addresses := int64(aws.ToInt32(i.offer.info.NetworkInfo.Ipv4AddressesPerInterface)) - 1
		out["vpc.amazonaws.com/PrivateIPv4Address"] = *resource.NewQuantity(addresses, resource.DecimalSI)
	}
	return out
}

// visibleMemory is MemTotal: what firmware, kernel and crash dumps leave of the
// advertised memory. They take 4 % and up to 140 MiB (1.8 % on small machines),
// and 64 MiB more on arm64: 5.7 % of an m5.large, 4.2 % of an m5.8xlarge, in line
// with what EKS nodes of these types report.
func visibleMemory(o *offer) int64 {
	advertised := aws.ToInt64(o.info.MemoryInfo.SizeInMiB)
	visible := advertised*96/100 - min(140, advertised*18/1000)
	if o.arch() == "arm64" {
		visible -= 64
	}
	return visible * mib
}

// eniPods is nodeadm's default for maxPods: an address for each pod but those of
// the interfaces themselves, and two for host-network pods.
func eniPods(o *offer) int64 {
	n := o.info.NetworkInfo
	enis := int64(aws.ToInt32(n.MaximumNetworkInterfaces))
	if card := int(aws.ToInt32(n.DefaultNetworkCardIndex)); card < len(n.NetworkCards) {
		enis = int64(aws.ToInt32(n.NetworkCards[card].MaximumNetworkInterfaces))
	}
	return enis*(int64(aws.ToInt32(n.Ipv4AddressesPerInterface))-1) + 2
}

// diskBytes is the file system of the kubelet: the instance store if user data
// asks for it, else the data volume less its boot partitions.
func diskBytes(i *instance, c *userdata.Config) int64 {
	if storage := i.offer.info.InstanceStorageInfo; c.RAID0 && storage != nil {
		return aws.ToInt64(storage.TotalSizeInGB) * 1_000_000_000
	}
	return int64(i.devices[i.image.Family.dataDevice()])*gib - 12*mib
}

// devices are the extended resources device plugins would advertise.
func devices(o *offer) map[corev1.ResourceName]int64 {
	out := map[corev1.ResourceName]int64{}
	if o.info.GpuInfo != nil {
		for _, gpu := range o.info.GpuInfo.Gpus {
			name := map[string]corev1.ResourceName{"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "habana": "habana.ai/gaudi"}[strings.ToLower(aws.ToString(gpu.Manufacturer))]
			if name != "" {
				out[name] += int64(aws.ToInt32(gpu.Count))
			}
		}
	}
	if o.info.NeuronInfo != nil {
		for _, d := range o.info.NeuronInfo.NeuronDevices {
			out["aws.amazon.com/neuron"] += int64(aws.ToInt32(d.Count))
		}
	}
	return out
}

// allocatable is capacity less what the image's defaults, under user data,
// reserve for the kubelet, the system and eviction.
func allocatable(i *instance, c *userdata.Config, capacity corev1.ResourceList) corev1.ResourceList {
	kube := map[string]string{
		"cpu":               fmt.Sprintf("%dm", reservedMilliCPU(capacity.Cpu().Value())),
		"memory":            fmt.Sprintf("%dMi", reservedMiB(i, capacity)),
		"ephemeral-storage": "1Gi",
	}
	maps.Copy(kube, c.KubeReserved)
	out := capacity.DeepCopy()
	for _, reserved := range []map[string]string{kube, c.SystemReserved} {
		for name, text := range reserved {
			subtract(out, corev1.ResourceName(name), text, capacity)
		}
	}
	evict := map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"}
	maps.Copy(evict, c.EvictionHard)
	subtract(out, corev1.ResourceMemory, evict["memory.available"], capacity)
	subtract(out, corev1.ResourceEphemeralStorage, evict["nodefs.available"], capacity)
	return out
}

// reservedMiB is 11 MiB a pod and 255: Amazon Linux counts the pods its
// interfaces allow, Bottlerocket and Windows those they are configured for.
func reservedMiB(i *instance, capacity corev1.ResourceList) int64 {
	pods := eniPods(i.offer)
	if i.image.Family == Bottlerocket || i.image.Family == Windows {
		pods = capacity.Pods().Value()
	}
	return 11*pods + 255
}

// reservedMilliCPU is 6 % of the first core, 1 % of the second, 0.5 % of the next
// two and 0.25 % of the others.
func reservedMilliCPU(cpus int64) int64 {
	reserved := int64(0)
	for core := range cpus {
		switch {
		case core == 0:
			reserved += 6000
		case core == 1:
			reserved += 1000
		case core < 4:
			reserved += 500
		default:
			reserved += 250
		}
	}
	return reserved / 100
}

// subtract takes a quantity, or a percentage of capacity, off a resource.
// 100 % turns an eviction signal off, as in the kubelet.
func subtract(from corev1.ResourceList, name corev1.ResourceName, text string, capacity corev1.ResourceList) {
	have, ok := from[name]
	if !ok || text == "" {
		return
	}
	if percent, isPercent := strings.CutSuffix(text, "%"); isPercent {
		share, err := strconv.ParseFloat(percent, 64)
		if err != nil || share >= 100 {
			return
		}
		all := capacity[name]
		have.Sub(*resource.NewQuantity(int64(math.Ceil(float64(all.Value())*share/100)), have.Format))
	} else if q, err := resource.ParseQuantity(text); err == nil {
		have.Sub(q)
	}
	if have.Sign() < 0 {
		have.Set(0)
	}
	from[name] = have
}
