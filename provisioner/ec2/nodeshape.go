// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// nodeShape is what a node class makes of any instance type: everything that decides sizes and which types qualify.
type nodeShape struct {
	class  string
	family family
	zones  map[string]string // zone → zone id, of the class's subnets
	images []bootable

	maxPods     *int32
	tellsPods   bool   // user data may set another number of pods than the image computes
	prefixes    bool   // interfaces hand out /28 prefixes in place of addresses
	reservedENI *int64 // interfaces pods cannot use, in place of the installation's setting
	podsPerCore int64
	kube        reserved // spec.kubelet.kubeReserved: replaces the computed values, key by key
	system      reserved
	evictMemory threshold
	evictDisk   threshold

	raid0      bool
	volume     int64 // bytes of the volume pods' files live on
	interfaces []v1.NetworkInterface
	nested     bool
	tracking   bool
	placement  *PlacementGroup
	observed   map[string]Observed                 // by instance type
	reserved   map[string][]v1.CapacityReservation // by instance type; those that can be launched into
}

type bootable struct {
	id   string
	reqs capacity.Requirements
}

// reserved holds amounts by resource: millicores for cpu, else bytes.
type reserved map[corev1.ResourceName]int64

// threshold is a hard eviction threshold: bytes, or else a percentage of the capacity.
type threshold struct {
	percent float64
	bytes   int64
}

func (t threshold) of(total int64) int64 {
	if t.bytes > 0 {
		return t.bytes
	}
	return int64(math.Ceil(float64(total) / 100 * t.percent))
}

const mib = 1 << 20

// CheckClass reports, as an error of kind Invalid that names the field, why no node of the class can be described or
// booted. It looks at the spec only.
func CheckClass(class *v1.EC2NodeClass) error {
	if err := checkKubelet(class.Spec.Kubelet); err != nil {
		return err
	}
	if _, err := newNodeShape(class); err != nil {
		return err
	}
	if _, err := BlockDevices(class); err != nil {
		return err
	}
	return nil
}

func newNodeShape(class *v1.EC2NodeClass) (*nodeShape, error) {
	f, err := classFamily(class)
	if err != nil {
		return nil, err
	}
	s := &nodeShape{
		class:    class.Name,
		family:   f,
		zones:    map[string]string{},
		raid0:    deref(class.Spec.InstanceStorePolicy) == v1.InstanceStorePolicyRAID0,
		volume:   volumeBytes(class, f),
		nested:   class.Spec.CPUOptions != nil && deref(class.Spec.CPUOptions.NestedVirtualization) == "enabled",
		tracking: class.Spec.ConnectionTracking != nil,

		placement: PlacementGroupOf(class),
		observed:  ObservedOf(class).Types,
		reserved:  map[string][]v1.CapacityReservation{},
		// Defaults of the images' kubelet configuration.
		evictMemory: threshold{bytes: 100 * mib},
		evictDisk:   threshold{percent: 10},
	}
	for _, n := range class.Spec.NetworkInterfaces {
		if n != nil {
			s.interfaces = append(s.interfaces, *n)
		}
	}
	for _, sub := range class.Status.Subnets {
		s.zones[sub.Zone] = sub.ZoneID
	}
	for _, a := range class.Status.AMIs {
		reqs, err := capacity.FromSelectors(a.Requirements)
		if err != nil {
			return nil, invalid("status.amis: image %q: %w", a.ID, err)
		}
		s.images = append(s.images, bootable{id: a.ID, reqs: reqs})
	}
	for _, r := range class.Status.CapacityReservations {
		if r.State != v1.CapacityReservationStateExpiring {
			s.reserved[r.InstanceType] = append(s.reserved[r.InstanceType], r)
		}
	}
	if err := s.readPods(class); err != nil {
		return nil, err
	}
	return s, s.readKubelet(class.Spec.Kubelet)
}

func (s *nodeShape) readKubelet(k *v1.KubeletConfiguration) (err error) {
	if k == nil {
		return nil
	}
	s.maxPods = k.MaxPods
	s.podsPerCore = int64(deref(k.PodsPerCore))
	if s.kube, err = newReserved("kubeReserved", k.KubeReserved); err != nil {
		return err
	}
	if s.system, err = newReserved("systemReserved", k.SystemReserved); err != nil {
		return err
	}
	if v, ok := k.EvictionHard["memory.available"]; ok {
		if s.evictMemory, err = newThreshold("memory.available", v); err != nil {
			return err
		}
	}
	if v, ok := k.EvictionHard["nodefs.available"]; ok {
		if s.evictDisk, err = newThreshold("nodefs.available", v); err != nil {
			return err
		}
	}
	return nil
}

func newReserved(field string, values map[string]string) (reserved, error) {
	out := reserved{}
	for k, v := range values {
		q, err := resource.ParseQuantity(v)
		if err != nil {
			return nil, invalid("spec.kubelet.%s: %q: %q is not a quantity", field, k, v)
		}
		switch name := corev1.ResourceName(k); name {
		case corev1.ResourceCPU:
			out[name] = q.MilliValue()
		case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
			out[name] = q.Value()
		}
	}
	return out, nil
}

// newThreshold parses a kubelet eviction threshold. 100% turns the threshold off (KubeletConfiguration v1beta1).
func newThreshold(signal, v string) (threshold, error) {
	if number, isPercent := strings.CutSuffix(v, "%"); isPercent {
		p, err := strconv.ParseFloat(number, 64)
		if err != nil || p < 0 || p > 100 {
			return threshold{}, invalid("spec.kubelet.evictionHard: %q: %q is not a percentage", signal, v)
		}
		if p == 100 {
			p = 0
		}
		return threshold{percent: p}, nil
	}
	q, err := resource.ParseQuantity(v)
	if err != nil {
		return threshold{}, invalid("spec.kubelet.evictionHard: %q: %q is neither a quantity nor a percentage", signal, v)
	}
	return threshold{bytes: q.Value()}, nil
}

// volumeBytes is the size of the volume pods' files live on: the one marked rootVolume, else the family's device, else
// (family Custom, whose device nobody knows) the last one of known size.
func volumeBytes(class *v1.EC2NodeClass, f family) int64 {
	size := func(m *v1.BlockDeviceMapping) (int64, bool) {
		if m == nil || m.EBS == nil || m.EBS.VolumeSize == nil {
			return 0, false
		}
		return m.EBS.VolumeSize.Value(), true
	}
	devices := class.Spec.BlockDeviceMappings
	for _, m := range devices {
		if n, ok := size(m); ok && m.RootVolume {
			return n
		}
	}
	if f.ephemeralDevice == "" && len(devices) > 0 {
		if n, ok := size(devices[len(devices)-1]); ok {
			return n
		}
	}
	for _, m := range devices {
		if n, ok := size(m); ok && deref(m.DeviceName) == f.ephemeralDevice {
			return n
		}
	}
	if len(devices) == 0 {
		for _, d := range f.devices {
			if d.DeviceName == f.ephemeralDevice {
				return int64(d.SizeGiB) << 30
			}
		}
	}
	return defaultVolumeGiB << 30
}

// accepts reports whether a node of the class can be an instance of the type at all.
func (s *nodeShape) accepts(t *typeFacts) bool {
	switch {
	case s.family.name == v1.AMIFamilyAL2023 && strings.HasPrefix(t.name, "a1."):
		return false // AL2023 needs ARMv8.2, which Graviton 1 lacks
	case s.family.windows != "" && t.arch != karpv1.ArchitectureAmd64:
		return false // there is no Windows for other processors
	case s.nested && !t.nested, s.tracking && !t.nitro:
		return false
	case s.placement != nil && !slices.Contains(t.placing, ec2types.PlacementGroupStrategy(s.placement.Strategy)):
		return false
	}
	if len(s.interfaces) == 0 {
		return true
	}
	if !t.ena {
		return false
	}
	efas := int64(0)
	for _, n := range s.interfaces {
		if n.InterfaceType == v1.InterfaceTypeEFAOnly {
			efas++
		}
		if !t.holds(n) {
			return false
		}
	}
	return efas <= t.efas
}

func (t *typeFacts) holds(n v1.NetworkInterface) bool {
	for _, c := range t.cards {
		if c.index == n.NetworkCardIndex {
			return int64(n.DeviceIndex) < c.interfaces
		}
	}
	return false
}

// labels are the labels a node has of the type and of the class, and absent those it does not have.
func (s *nodeShape) labels(t *typeFacts) (labels map[string]string, absent []string) {
	labels = make(map[string]string, len(t.labels)+3)
	maps.Copy(labels, t.labels)
	labels[corev1.LabelOSStable] = string(s.family.os())
	labels[v1.LabelNodeClass] = s.class
	var drop []string
	if s.family.windows != "" {
		labels[corev1.LabelWindowsBuild] = s.family.windows
		drop = append(drop, corev1.LabelWindowsBuild)
	}
	if s.placement != nil {
		labels[v1.LabelPlacementGroupID] = s.placement.ID
		drop = append(drop, v1.LabelPlacementGroupID)
		if s.placement.Partitions > 0 {
			drop = append(drop, v1.LabelPlacementGroupPartition)
		}
	}
	if len(drop) == 0 {
		return labels, t.absent
	}
	return labels, slices.DeleteFunc(slices.Clone(t.absent), func(k string) bool { return slices.Contains(drop, k) })
}

// choices are the labels a launch chooses the value of.
func (s *nodeShape) choices() capacity.Requirements {
	out := capacity.Requirements{}.With(
		capacity.In(v1.LabelInstanceTenancy, string(ec2types.TenancyDefault), string(ec2types.TenancyDedicated)))
	if s.placement != nil && s.placement.Partitions > 0 {
		var partitions []string
		for i := range s.placement.Partitions {
			partitions = append(partitions, strconv.Itoa(int(i)+1))
		}
		out = out.With(capacity.In(v1.LabelPlacementGroupPartition, partitions...))
	}
	return out
}

// image returns the first image of the class that boots on the type.
func (s *nodeShape) image(labels map[string]string) (string, bool) {
	for _, b := range s.images {
		if b.reqs.MatchesLabels(labels) {
			return b.id, true
		}
	}
	return "", false
}

// ImageFor returns the id of the first image in the class's status that boots on the type; false if none does.
func ImageFor(class *v1.EC2NodeClass, t *capacity.InstanceType) (string, bool) {
	for _, a := range class.Status.AMIs {
		reqs, err := capacity.FromSelectors(a.Requirements)
		if err == nil && reqs.MatchesLabels(t.Labels) {
			return a.ID, true
		}
	}
	return "", false
}
