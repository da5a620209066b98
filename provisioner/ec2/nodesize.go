// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"maps"
	"math"
	"slices"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// sizing holds the settings of the installation that sizes depend on.
type sizing struct {
	vmOverhead   float64
	reservedENIs int64
}

// capacityOf is what a node of the class reports as status.capacity. It errs on the small side: a node that turns out
// larger than planned is harmless.
func (z sizing) capacityOf(t *typeFacts, s *nodeShape) capacity.Resources {
	r := capacity.Resources{
		CPU:       t.vcpus * 1000,
		Memory:    z.memory(t),
		Ephemeral: s.volume,
		Pods:      z.pods(t, s),
		Extended:  t.extended,
	}
	if s.raid0 && t.storeGB > 0 {
		r.Ephemeral = t.storeGB * 1e9
	}
	if s.family.windows != "" {
		// The addresses the VPC resource controller hands out, which Windows pods ask for by way of its webhook.
		r.Extended = with(r.Extended, v1.ResourcePrivateIPv4Address, max(t.ipv4-1, 0))
	}
	// A node has the EFA devices the class lists; one of a class that lists no interfaces gets the type's, if a pod asks for them.
	efas := t.efas
	if len(s.interfaces) > 0 {
		efas = s.efaOnly(func(v1.NetworkInterface) bool { return true })
	}
	r.Extended = with(r.Extended, v1.ResourceEFA, efas)
	return r
}

// with returns the quantities and n of one more; the quantities as they are if n is 0.
func with(list []capacity.Quantity, name corev1.ResourceName, n int64) []capacity.Quantity {
	if n == 0 {
		return list
	}
	list = append(slices.Clone(list), capacity.Quantity{Name: name, Value: n})
	slices.SortFunc(list, byResource)
	return list
}

// memory is what is left of the advertised memory after what the hypervisor and kernel keep; Graviton keeps a further
// 64 MiB for its contiguous memory allocator.
func (z sizing) memory(t *typeFacts) int64 {
	m := t.memory
	if t.arch == karpv1.ArchitectureArm64 {
		m -= 64 * mib
	}
	return m - int64(math.Ceil(float64(m)*z.vmOverhead/mib))*mib
}

func (s *nodeShape) efaOnly(which func(v1.NetworkInterface) bool) int64 {
	n := int64(0)
	for _, i := range s.interfaces {
		if i.InterfaceType == v1.InterfaceTypeEFAOnly && which(i) {
			n++
		}
	}
	return n
}

// overheadOf is what the kubelet keeps from pods: kube-reserved as the images compute it unless the class says
// otherwise, system-reserved, and the hard eviction thresholds.
func overheadOf(t *typeFacts, s *nodeShape, total capacity.Resources) capacity.Resources {
	pods := total.Pods
	if s.family.reserveByENI {
		pods = eniPods(t, s, 0, false) // the image does not know of the class's settings
	}
	kube := reserved{
		corev1.ResourceCPU:              reservedCPU(total.CPU),
		corev1.ResourceMemory:           (11*pods + 255) * mib,
		corev1.ResourceEphemeralStorage: 1 << 30,
	}
	maps.Copy(kube, s.kube)
	sum := func(name corev1.ResourceName) int64 { return kube[name] + s.system[name] }
	return capacity.Resources{
		CPU:       sum(corev1.ResourceCPU),
		Memory:    sum(corev1.ResourceMemory) + s.evictMemory.of(total.Memory),
		Ephemeral: sum(corev1.ResourceEphemeralStorage) + s.evictDisk.of(total.Ephemeral),
	}
}

// reservedCPU keeps 6 % of the first core, 1 % of the second, 0.5 % of the next two and 0.25 % of all others, each
// truncated to millicores (amazon-eks-ami, bootstrap.sh).
func reservedCPU(milli int64) int64 {
	out := int64(0)
	for _, step := range [...]struct {
		from, to int64
		share    float64
	}{{0, 1000, 0.06}, {1000, 2000, 0.01}, {2000, 4000, 0.005}, {4000, math.MaxInt32, 0.0025}} {
		if milli > step.from {
			out += int64(float64(min(milli, step.to)-step.from) * step.share)
		}
	}
	return out
}
