// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"context"
	"fmt"
	"slices"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// Market is what a region sells.
type Market struct {
	Catalogs *ec2.Catalogs
	zones    []zone
	// live says that classes are resolved already, by the cluster they are from.
	live bool
}

type zone struct{ name, id string }

// Offline is the embedded catalogue of us-east-1: its instance types, three of its zones, its published on-demand prices, and
// spot prices drawn from those by a fixed seed. No network is used beyond loopback.
func Offline(ctx context.Context) (*Market, error) {
	const cluster = "preview"
	emulator, err := ec2emu.Start(ctx, ec2emu.Options{Seed: 1, ClusterName: cluster})
	if err != nil {
		return nil, fmt.Errorf("reading the embedded catalogue: %w", err)
	}
	defer emulator.Close()
	client := ec2.New(emulator.AWSConfig(), ec2.Options{ClusterName: cluster, Region: emulator.Region(), VMMemoryOverhead: 0.075})
	m := &Market{}
	if m.Catalogs, err = ec2.NewCatalogs(client); err != nil {
		return nil, fmt.Errorf("reading the embedded catalogue: %w", err)
	}
	if err := m.Catalogs.Refresh(ctx); err != nil {
		return nil, fmt.Errorf("reading the embedded catalogue: %w", err)
	}
	subnets, err := client.Subnets(ctx, []v1.SubnetSelectorTerm{{Tags: map[string]string{"karpenter.sh/discovery": cluster}}})
	if err != nil {
		return nil, fmt.Errorf("reading the embedded catalogue: %w", err)
	}
	for i := range subnets {
		if z := (zone{subnets[i].Zone, subnets[i].ZoneID}); !slices.Contains(m.zones, z) {
			m.zones = append(m.zones, z)
		}
	}
	return m, nil
}

// resolve gives a class the status a resolved one has: a subnet in every zone, an image for each architecture. Selectors
// name things of an account that is not asked here.
func (m *Market) resolve(class *v1.EC2NodeClass) {
	if m.live {
		return
	}
	s := &class.Status
	*s = v1.EC2NodeClassStatus{InstanceProfile: "preview"}
	for _, z := range m.zones {
		s.Subnets = append(s.Subnets, v1.Subnet{ID: "subnet-" + z.name, Zone: z.name, ZoneID: z.id})
	}
	s.SecurityGroups = []v1.SecurityGroup{{ID: "sg-preview", Name: "preview"}}
	for _, arch := range []string{karpv1.ArchitectureAmd64, karpv1.ArchitectureArm64} {
		s.AMIs = append(s.AMIs, v1.AMI{ID: "ami-" + arch, Name: "preview-" + arch, Requirements: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{arch}},
		}})
	}
	conditions := class.StatusConditions()
	for _, c := range []string{
		v1.ConditionTypeSubnetsReady, v1.ConditionTypeSecurityGroupsReady, v1.ConditionTypeAMIsReady,
		v1.ConditionTypeInstanceProfileReady, v1.ConditionTypeCapacityReservationsReady, v1.ConditionTypePlacementGroupReady,
		v1.ConditionTypeValidationSucceeded,
	} {
		conditions.SetTrue(c)
	}
}

// standIn is the class of a pool whose own is in none of the manifests.
func standIn(name string) *v1.EC2NodeClass {
	return &v1.EC2NodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("ec2nodeclass//" + name)},
		Spec:       v1.EC2NodeClassSpec{AMISelectorTerms: []v1.AMISelectorTerm{{Alias: "al2023@latest"}}},
	}
}
