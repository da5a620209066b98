// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// newCatalogs makes what knows what EC2 sells, and keeps it fresh while the manager runs.
func newCatalogs(m manager.Manager, cloud *ec2.Client) (*ec2.Catalogs, error) {
	catalogs, err := ec2.NewCatalogs(cloud)
	if err != nil {
		return nil, err
	}
	metrics.Registry.MustRegister(catalogs.Metrics.Collectors()...)
	ahead := func(ctx context.Context) error { return buildAhead(ctx, m.GetCache(), catalogs) }
	for _, loop := range []manager.RunnableFunc{catalogs.Run, ahead} {
		if err := m.Add(loop); err != nil {
			return nil, fmt.Errorf("adding the catalogues: %w", err)
		}
	}
	return catalogs, nil
}

// buildAhead builds the catalogue of a class when the class changes, a tenth of a second's work that the first notice would wait
// for otherwise. It waits for the kind, whose definition may be applied after this process has started.
func buildAhead(ctx context.Context, objects cache.Cache, catalogs *ec2.Catalogs) error {
	var classes cache.Informer
	err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		var err error
		classes, err = objects.GetInformer(ctx, &v1.EC2NodeClass{}, cache.BlockUntilSynced(false))
		if meta.IsNoMatchError(err) {
			return false, nil
		}
		return err == nil, err
	})
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // the process ends
	case err != nil:
		return fmt.Errorf("watching EC2NodeClasses: %w", err)
	}
	build := func(obj any) {
		if class, ok := obj.(*v1.EC2NodeClass); ok && ctx.Err() == nil {
			catalogs.For(class)
		}
	}
	if _, err := classes.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: build, UpdateFunc: func(_, obj any) { build(obj) }}); err != nil {
		return fmt.Errorf("watching EC2NodeClasses: %w", err)
	}
	<-ctx.Done()
	return nil
}
