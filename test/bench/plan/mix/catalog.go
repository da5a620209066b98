// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// EC2 is everything EC2 sells in us-east-1 (three zones, spot and on-demand) as nodes of an AL2023 class: the product's
// own catalogue over the emulator's recorded types and prices.
func EC2(ctx context.Context) (*capacity.Catalog, error) {
	emu, err := ec2emu.Start(ctx, ec2emu.Options{Seed: 1})
	if err != nil {
		return nil, err
	}
	defer emu.Close()
	catalogs, err := ec2.NewCatalogs(ec2.New(emu.AWSConfig(), ec2.Options{ClusterName: "demo"}))
	if err != nil {
		return nil, err
	}
	if err := catalogs.Refresh(ctx); err != nil {
		return nil, fmt.Errorf("reading the catalogue: %w", err)
	}
	class := builder.EC2NodeClass("default").
		ResolvedSubnet("subnet-a", "us-east-1a", "use1-az1").ResolvedSubnet("subnet-b", "us-east-1b", "use1-az2").ResolvedSubnet("subnet-c", "us-east-1c", "use1-az4").
		ResolvedAMI("ami-1", "amd64").ResolvedAMI("ami-2", "arm64").Ready().Obj()
	class.UID = "class"
	c := catalogs.For(class)
	if c == nil {
		return nil, errors.New("there is no catalogue for the class")
	}
	return c, nil
}

// peerTypes is the number of types in Karpenter's benchmark.
const peerTypes = 400

// Peer is the catalogue of Karpenter's scheduling benchmark (its cloudprovider/fake, InstanceTypes(400)): the i-th type
// has i cores, 2i GiB and 10i pods, of which 100m and 10Mi are reserved; 0.1 dollars a core and 0.1 a GB; on-demand in
// three zones and spot in two of them, at one price.
func Peer() *capacity.Catalog {
	types := make([]*builder.InstanceTypeBuilder, peerTypes)
	for i := range types {
		n := i + 1
		price := 0.1*float64(n) + 0.1*float64(n)*2*(1<<30)/1e9
		types[i] = builder.InstanceType(fmt.Sprintf("fake-it-%d", i)).CPU(fmt.Sprint(n)).Memory(fmt.Sprintf("%dGi", 2*n)).
			Resource(corev1.ResourcePods, fmt.Sprint(10*n)).Arch("amd64").
			Allocatable(corev1.ResourceCPU, fmt.Sprintf("%dm", 1000*n-100)).Allocatable(corev1.ResourceMemory, fmt.Sprintf("%dMi", 2048*n-10)).
			OnDemand(price, "test-zone-1", "test-zone-2", "test-zone-3").Spot(price, "test-zone-1", "test-zone-2")
	}
	return builder.Catalog(types...)
}
