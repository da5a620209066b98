// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// discoveryTag is the tag by which Karpenter's guides select subnets and security groups.
const discoveryTag = "karpenter.sh/discovery"

// EC2NodeClassBuilder builds an EC2NodeClass.
type EC2NodeClassBuilder struct {
	Meta[*EC2NodeClassBuilder]
	class *v1.EC2NodeClass
}

// EC2NodeClass starts a class like those of Karpenter's guides: newest AL2023 image, role KarpenterNodeRole-demo, subnets and
// security groups tagged karpenter.sh/discovery=demo. It has no status yet.
func EC2NodeClass(name string) *EC2NodeClassBuilder {
	c := &v1.EC2NodeClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: "karpenter.k8s.aws/v1", Kind: "EC2NodeClass"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	tags := func() map[string]string { return map[string]string{discoveryTag: "demo"} }
	c.Spec.AMISelectorTerms = []v1.AMISelectorTerm{{Alias: "al2023@latest"}}
	c.Spec.SubnetSelectorTerms = []v1.SubnetSelectorTerm{{Tags: tags()}}
	c.Spec.SecurityGroupSelectorTerms = []v1.SecurityGroupSelectorTerm{{Tags: tags()}}
	c.Spec.Role = "KarpenterNodeRole-demo"
	b := &EC2NodeClassBuilder{class: c}
	b.Meta = Meta[*EC2NodeClassBuilder]{self: b, object: &c.ObjectMeta}
	return b
}

// Obj returns the class.
func (b *EC2NodeClassBuilder) Obj() *v1.EC2NodeClass { return b.class.DeepCopy() }

// AMIs replaces the image selector terms.
func (b *EC2NodeClassBuilder) AMIs(terms ...v1.AMISelectorTerm) *EC2NodeClassBuilder {
	b.class.Spec.AMISelectorTerms = terms
	return b
}

// Subnets replaces the subnet selector terms.
func (b *EC2NodeClassBuilder) Subnets(terms ...v1.SubnetSelectorTerm) *EC2NodeClassBuilder {
	b.class.Spec.SubnetSelectorTerms = terms
	return b
}

// SecurityGroups replaces the security group selector terms.
func (b *EC2NodeClassBuilder) SecurityGroups(terms ...v1.SecurityGroupSelectorTerm) *EC2NodeClassBuilder {
	b.class.Spec.SecurityGroupSelectorTerms = terms
	return b
}

// Role sets spec.role.
func (b *EC2NodeClassBuilder) Role(role string) *EC2NodeClassBuilder {
	b.class.Spec.Role = role
	return b
}

// InstanceProfile names an existing instance profile in place of a role.
func (b *EC2NodeClassBuilder) InstanceProfile(name string) *EC2NodeClassBuilder {
	b.class.Spec.Role = ""
	b.class.Spec.InstanceProfile = &name
	return b
}

// UserData sets spec.userData.
func (b *EC2NodeClassBuilder) UserData(text string) *EC2NodeClassBuilder {
	b.class.Spec.UserData = &text
	return b
}

// MaxPods sets spec.kubelet.maxPods.
func (b *EC2NodeClassBuilder) MaxPods(n int32) *EC2NodeClassBuilder {
	if b.class.Spec.Kubelet == nil {
		b.class.Spec.Kubelet = &v1.KubeletConfiguration{}
	}
	b.class.Spec.Kubelet.MaxPods = &n
	return b
}

// Tag adds a tag for everything the class creates.
func (b *EC2NodeClassBuilder) Tag(key, value string) *EC2NodeClassBuilder {
	put(&b.class.Spec.Tags, key, value)
	return b
}

// Volume adds a gp3 block device of a size.
func (b *EC2NodeClassBuilder) Volume(device, size string) *EC2NodeClassBuilder {
	q, gp3 := resource.MustParse(size), "gp3"
	b.class.Spec.BlockDeviceMappings = append(b.class.Spec.BlockDeviceMappings, &v1.BlockDeviceMapping{
		DeviceName: &device, EBS: &v1.BlockDevice{VolumeSize: &q, VolumeType: &gp3},
	})
	return b
}

// ResolvedSubnet adds a subnet to the status.
func (b *EC2NodeClassBuilder) ResolvedSubnet(id, zone, zoneID string) *EC2NodeClassBuilder {
	b.class.Status.Subnets = append(b.class.Status.Subnets, v1.Subnet{ID: id, Zone: zone, ZoneID: zoneID})
	return b
}

// ResolvedAMI adds an image for one architecture to the status.
func (b *EC2NodeClassBuilder) ResolvedAMI(id, arch string) *EC2NodeClassBuilder {
	b.class.Status.AMIs = append(b.class.Status.AMIs, v1.AMI{
		ID: id, Name: "ami-" + arch, Requirements: []corev1.NodeSelectorRequirement{In(corev1.LabelArchStable, arch)},
	})
	return b
}

// Ready completes the status of a class that instances can be launched from: an amd64 and an arm64 image and subnets in
// us-east-1a, b and c unless the test resolved its own, a security group, a profile, and all conditions true.
func (b *EC2NodeClassBuilder) Ready() *EC2NodeClassBuilder {
	s := &b.class.Status
	if len(s.Subnets) == 0 {
		b.ResolvedSubnet("subnet-a", "us-east-1a", "use1-az1").
			ResolvedSubnet("subnet-b", "us-east-1b", "use1-az2").
			ResolvedSubnet("subnet-c", "us-east-1c", "use1-az4")
	}
	if len(s.AMIs) == 0 {
		b.ResolvedAMI("ami-amd64", "amd64").ResolvedAMI("ami-arm64", "arm64")
	}
	s.SecurityGroups = []v1.SecurityGroup{{ID: "sg-nodes", Name: "nodes"}}
	s.InstanceProfile = "demo_" + b.class.Name
	for _, c := range []string{
		v1.ConditionTypeAMIsReady, v1.ConditionTypeSubnetsReady, v1.ConditionTypeSecurityGroupsReady,
		v1.ConditionTypeInstanceProfileReady, v1.ConditionTypeValidationSucceeded,
		v1.ConditionTypePlacementGroupReady, readyCondition,
	} {
		setCondition(b.class, c, metav1.ConditionTrue, "", "")
	}
	return b
}

// NotReady sets condition c, and with it Ready, to false.
func (b *EC2NodeClassBuilder) NotReady(c, reason, message string) *EC2NodeClassBuilder {
	setCondition(b.class, c, metav1.ConditionFalse, reason, message)
	setCondition(b.class, readyCondition, metav1.ConditionFalse, "UnhealthyDependents", c+"=False")
	return b
}
