// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// realCatalog is everything EC2 sells in us-east-1 (three zones, spot and on-demand) as nodes of an AL2023 class: the
// product's own catalogue over the emulator's recorded types and prices.
func realCatalog(ctx context.Context) (*capacity.Catalog, error) {
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
		return nil, fmt.Errorf("there is no catalogue for the class")
	}
	return c, nil
}
