// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// newCatalogs makes what knows what EC2 sells, and keeps it fresh while the manager runs. The catalogue of a class is built when the
// class changes, a tenth of a second's work that the first notice would wait for otherwise.
func newCatalogs(ctx context.Context, m manager.Manager, cloud *ec2.Client) (*ec2.Catalogs, error) {
	catalogs, err := ec2.NewCatalogs(cloud)
	if err != nil {
		return nil, err
	}
	metrics.Registry.MustRegister(catalogs.Metrics.Collectors()...)
	classes, err := m.GetCache().GetInformer(ctx, &v1.EC2NodeClass{})
	if err != nil {
		return nil, fmt.Errorf("watching EC2NodeClasses: %w", err)
	}
	build := func(obj any) {
		if class, ok := obj.(*v1.EC2NodeClass); ok && ctx.Err() == nil {
			catalogs.For(class)
		}
	}
	if _, err := classes.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: build, UpdateFunc: func(_, obj any) { build(obj) }}); err != nil {
		return nil, fmt.Errorf("watching EC2NodeClasses: %w", err)
	}
	if err := m.Add(manager.RunnableFunc(catalogs.Run)); err != nil {
		return nil, fmt.Errorf("adding the catalogues: %w", err)
	}
	return catalogs, nil
}
