// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/provisioner/launch"
	"github.com/slipway-sh/slipway/provisioner/nodeclass"
)

// leaderLoops act on the cluster and on EC2, and only one process may.
type leaderLoops struct {
	kube      client.Client
	objects   cache.Cache
	templates *launch.Templates
	subnets   *launch.Subnets
	slots     *ec2.Slots
	tagger    *launch.Tagger
	shortages *ec2.Shortages
	launcher  *launch.Launcher
	disrupt   *disruption.Controller // nil if no node is to be taken away
	prov      *provisioner.Provisioner
	rival     *rival
	cloud     *ec2.Client
	checker   *nodeclass.LaunchChecker // nil if the controller asks EC2 itself
}

// run starts them once this process leads.
func (l leaderLoops) run(ctx context.Context) {
	if !l.objects.WaitForCacheSync(ctx) || !l.prov.AwaitLead(ctx) || !l.rival.await(ctx) {
		return
	}
	go l.templates.Run(ctx)
	go l.subnets.Run(ctx)
	go l.slots.Run(ctx, func() []string { return reservations(ctx, l.kube) })
	go l.tagger.Run(ctx)
	go l.resumeTags(ctx)
	go retryReturned(ctx, l.shortages, l.prov)
	if l.checker != nil {
		go l.checker.Run(ctx)
	}
	go func() { fatal(ctx, "launcher", l.launcher.Run(ctx, l.objects)) }()
	if l.disrupt != nil {
		go func() { fatal(ctx, "disruption", l.disrupt.Run(ctx)) }()
	}
	fatal(ctx, "provisioner", l.prov.Run(ctx))
}

// resumeTags takes up the tags that an earlier leader left undone. They are for people: one failure leaves them so.
func (l leaderLoops) resumeTags(ctx context.Context) {
	if err := l.tagger.Resume(ctx, l.cloud, l.kube, l.cloud.ClusterName()); err != nil && ctx.Err() == nil {
		log.FromContext(ctx).Info("instances of earlier launches may stay without their Name tag", "reason", err.Error())
	}
}
