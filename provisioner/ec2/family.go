// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"math"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// family is how an AMI family lays out a node.
type family struct {
	name string
	// ephemeralDevice is where pods' files live, empty if unknown.
	ephemeralDevice string
	// devices are the block devices of a class that names none.
	devices []BlockDevice
	// reserveByENI: the image reserves memory for as many pods as its network interfaces allow, whatever maxPods says.
	reserveByENI bool
	// podsPerCore: the image honours kubelet's podsPerCore.
	podsPerCore bool
	// podsByENI: nodes take as many pods as their network interfaces have addresses for, else kubelet's default.
	podsByENI bool
	// windows is the build of Windows Server, empty for Linux.
	windows string
}

func (f family) os() corev1.OSName {
	if f.windows != "" {
		return corev1.Windows
	}
	return corev1.Linux
}

// defaultVolumeGiB is the size of the volume pods' files live on when a class does not say.
const defaultVolumeGiB = 20

// windowsVolumeGiB is that of a Windows node.
const windowsVolumeGiB = 50

func rootDevice(device string, gib int32) BlockDevice {
	encrypted := true
	return BlockDevice{DeviceName: device, SizeGiB: gib, VolumeType: "gp3", Encrypted: &encrypted}
}

// familyOf returns the layout of a family Slipway can boot. Any other is an Invalid error that names the field.
func familyOf(name string) (family, error) {
	switch name {
	case v1.AMIFamilyAL2023, v1.AMIFamilyAL2:
		return family{
			name: name, ephemeralDevice: "/dev/xvda", reserveByENI: true, podsPerCore: true, podsByENI: true,
			devices: []BlockDevice{rootDevice("/dev/xvda", defaultVolumeGiB)},
		}, nil
	case v1.AMIFamilyBottlerocket:
		return family{
			name: name, ephemeralDevice: "/dev/xvdb", podsByENI: true,
			devices: []BlockDevice{rootDevice("/dev/xvda", 4), rootDevice("/dev/xvdb", defaultVolumeGiB)},
		}, nil
	case v1.AMIFamilyCustom:
		return family{name: name, reserveByENI: true, podsPerCore: true, podsByENI: true}, nil
	case v1.AMIFamilyWindows2019:
		return windows(name, v1.Windows2019Build), nil
	case v1.AMIFamilyWindows2022:
		return windows(name, v1.Windows2022Build), nil
	case v1.AMIFamilyWindows2025:
		return windows(name, v1.Windows2025Build), nil
	}
	return family{}, invalid("spec.amiFamily: %q is not supported; use AL2023, AL2, Bottlerocket, Windows2019, Windows2022, Windows2025 or Custom", name)
}

func windows(name, build string) family {
	return family{
		name: name, ephemeralDevice: "/dev/sda1", podsPerCore: true, windows: build,
		devices: []BlockDevice{rootDevice("/dev/sda1", windowsVolumeGiB)},
	}
}

// aliasFamilies are the families an alias may name, as it spells them.
var aliasFamilies = map[string]string{ //nolint:gochecknoglobals // a table, never written
	"al2":          v1.AMIFamilyAL2,
	"al2023":       v1.AMIFamilyAL2023,
	"bottlerocket": v1.AMIFamilyBottlerocket,
	"windows2019":  v1.AMIFamilyWindows2019,
	"windows2022":  v1.AMIFamilyWindows2022,
	"windows2025":  v1.AMIFamilyWindows2025,
}

// alias splits the class's alias term; ok is false if it has none. (EC2NodeClass.Alias ends the process on an alias it
// does not know, which an API server without the CRD's rules may hand out.)
func alias(class *v1.EC2NodeClass) (familyName, version string, ok bool, err error) {
	for _, t := range class.Spec.AMISelectorTerms {
		if t.Alias == "" {
			continue
		}
		name, version, cut := strings.Cut(t.Alias, "@")
		familyName, known := aliasFamilies[name]
		if !cut || !known || version == "" {
			return "", "", false, invalid("spec.amiSelectorTerms: alias %q is not of the form family@version with a known family", t.Alias)
		}
		return familyName, version, true, nil
	}
	return "", "", false, nil
}

// Family returns the AMI family of a class: spec.amiFamily, else that of its alias. The error is of kind Invalid, as it
// is for families Slipway cannot boot.
func Family(class *v1.EC2NodeClass) (string, error) {
	f, err := classFamily(class)
	return f.name, err
}

func classFamily(class *v1.EC2NodeClass) (family, error) {
	name, _, ok, err := alias(class)
	if err != nil {
		return family{}, err
	}
	if class.Spec.AMIFamily != nil {
		name, ok = *class.Spec.AMIFamily, true
	}
	if !ok {
		return family{}, invalid("spec.amiFamily: must be set when spec.amiSelectorTerms has no alias")
	}
	return familyOf(name)
}

// BlockDevices returns the block device mappings an instance of the class is launched with: its own, else the family's.
func BlockDevices(class *v1.EC2NodeClass) ([]BlockDevice, error) {
	f, err := classFamily(class)
	if err != nil {
		return nil, err
	}
	if len(class.Spec.BlockDeviceMappings) == 0 {
		return f.devices, nil
	}
	out := make([]BlockDevice, 0, len(class.Spec.BlockDeviceMappings))
	for _, m := range class.Spec.BlockDeviceMappings {
		if m == nil || m.EBS == nil || m.DeviceName == nil {
			return nil, invalid("spec.blockDeviceMappings: every entry needs deviceName and ebs")
		}
		b := BlockDevice{
			DeviceName:          *m.DeviceName,
			VolumeType:          deref(m.EBS.VolumeType),
			IOPS:                saturated(deref(m.EBS.IOPS)),
			Throughput:          saturated(deref(m.EBS.Throughput)),
			Encrypted:           m.EBS.Encrypted,
			KMSKeyID:            deref(m.EBS.KMSKeyID),
			SnapshotID:          deref(m.EBS.SnapshotID),
			DeleteOnTermination: m.EBS.DeleteOnTermination,
			InitializationRate:  deref(m.EBS.VolumeInitializationRate),
		}
		if s := m.EBS.VolumeSize; s != nil {
			b.SizeGiB = ceilGiB(s)
		}
		out = append(out, b)
	}
	return out, nil
}

func ceilGiB(q *resource.Quantity) int32 {
	gib := q.Value() >> 30
	if gib<<30 < q.Value() {
		gib++
	}
	return saturated(gib)
}

// saturated is v, or the bound of int32 that it is beyond. EC2 refuses such a number; cut off, it might be one that EC2 takes.
func saturated(v int64) int32 { return int32(max(min(v, math.MaxInt32), math.MinInt32)) }

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
