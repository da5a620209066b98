// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// What the catalogue counts with is what the node is told, or what its image comes to by itself.
func TestPods(t *testing.T) {
	annotated := func(key, value string) func(*v1.EC2NodeClass) {
		return func(c *v1.EC2NodeClass) { c.Annotations = map[string]string{key: value} }
	}
	large := info("m5.24xlarge", "x86_64", 96, 393216, 15, 50)
	xen := m5Large()
	xen.Hypervisor = ec2types.InstanceTypeHypervisorXen
	tests := []struct {
		name     string
		info     ec2types.InstanceTypeInfo
		reserved int64 // the installation's setting
		class    func(*v1.EC2NodeClass)
		pods     int64
		told     int32
	}{
		{"as the image computes", m5Large(), 0, nil, 29, 0},
		{"one interface reserved by the installation", m5Large(), 1, nil, 20, 20},
		{"one reserved by the class", m5Large(), 0, annotated(AnnotationReservedENIs, "1"), 20, 20},
		{"the class goes first", m5Large(), 2, annotated(AnnotationReservedENIs, "0"), 29, 0},
		{"prefixes on a small node", m5Large(), 0, annotated(AnnotationPrefixDelegation, "true"), 110, 110},
		{"prefixes on a large node", large, 0, annotated(AnnotationPrefixDelegation, "true"), 250, 250},
		{"prefixes where interfaces cannot have them", xen, 0, annotated(AnnotationPrefixDelegation, "true"), 29, 29},
		{"few prefixes", info("t3.nano", "x86_64", 2, 512, 2, 2), 1, annotated(AnnotationPrefixDelegation, "true"), 18, 18},
		{"maxPods goes before all", m5Large(), 1, func(c *v1.EC2NodeClass) {
			c.Spec.Kubelet = &v1.KubeletConfiguration{MaxPods: aws.Int32(5)}
		}, 5, 0},
		{"user data that sets another number", m5Large(), 0, func(c *v1.EC2NodeClass) { c.Spec.UserData = aws.String("kubelet: {config: {maxPods: 3}}") }, 29, 29},
		{"an EFA-only interface takes one", m5Large(), 0, func(c *v1.EC2NodeClass) {
			c.Spec.NetworkInterfaces = []*v1.NetworkInterface{{InterfaceType: "interface"}, {DeviceIndex: 1, InterfaceType: "efa-only"}}
		}, 20, 20},
		{"Windows", m5Large(), 0, func(c *v1.EC2NodeClass) { c.Spec.AMISelectorTerms[0].Alias = "windows2022@latest" }, 110, 110},
		{"an image of one's own", m5Large(), 1, func(c *v1.EC2NodeClass) { c.Spec.AMIFamily = aws.String("Custom") }, 20, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			class := al2023Class()
			if tt.class != nil {
				tt.class(class)
			}
			s, err := newNodeShape(class)
			if err != nil {
				t.Fatal(err)
			}
			z := sizing{reservedENIs: tt.reserved}
			f := facts(t, tt.info)
			if pods, told := z.pods(f, s), z.bootPods(f, s); pods != tt.pods || told != tt.told {
				t.Errorf("pods = %d, told %d; want %d, told %d", pods, told, tt.pods, tt.told)
			}
		})
	}
	for key, value := range map[string]string{AnnotationPrefixDelegation: "on", AnnotationReservedENIs: "-1"} {
		class := al2023Class()
		annotated(key, value)(class)
		if err := CheckClass(class); capacity.KindOf(err) != capacity.Invalid || !strings.Contains(err.Error(), key) {
			t.Errorf("%s=%s: CheckClass = %v, want kind Invalid that names the annotation", key, value, err)
		}
	}
}

// What nodes reported replaces what is computed, larger or smaller, but never makes a node take more pods than it was told.
func TestObservedCapacityIsUsed(t *testing.T) {
	cs := stocked(t, clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)))
	class := readyClass()
	computed := cs.For(class).Type("m5.large")
	o := ObservedOf(class)
	o.Types["m5.large"] = Observed{Memory: [2]int64{7000, 6000}, Ephemeral: [2]int64{30000, 29000}, Pods: 18}
	class.Annotations = map[string]string{AnnotationObserved: o.String()}
	class.ResourceVersion = "2"
	got := cs.For(class).Type("m5.large")
	want := [...]int64{7000 * mib, 6000 * mib, 30000 * mib, 29000 * mib, 18, 18, computed.Allocatable.CPU}
	have := [...]int64{
		got.Capacity.Memory, got.Allocatable.Memory, got.Capacity.Ephemeral, got.Allocatable.Ephemeral, got.Capacity.Pods, got.Allocatable.Pods, got.Allocatable.CPU,
	}
	if want != have {
		t.Errorf("memory, ephemeral, pods, cpu = %v, want %v", have, want)
	}
	if other := cs.For(class).Type("c6g.large"); other.Capacity.Memory != 3729*mib {
		t.Errorf("memory of c6g.large = %d, want it as computed", other.Capacity.Memory)
	}
}
