// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/slipway-sh/slipway/scheduler/simulate"
)

// newJudge builds a judge for Kubernetes' default profile over a cluster of the objects, as a scheduler process does.
func newJudge(ctx context.Context, objects []runtime.Object) (*simulate.Judge, error) {
	ctx = klog.NewContext(ctx, logr.Discard())
	client := fake.NewClientset(objects...)
	informers := scheduler.NewInformerFactory(client, 0, nil)
	config, err := latest.Default()
	if err != nil {
		return nil, err
	}
	live := config.Profiles[0]
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	sched, err := scheduler.New(ctx, client, informers, nil, profile.NewRecorderFactory(broadcaster), scheduler.WithProfiles(live))
	if err != nil {
		return nil, fmt.Errorf("building a scheduler: %w", err)
	}
	judge, err := simulate.New(ctx, simulate.Options{Profile: live, Live: sched.Profiles[live.SchedulerName]})
	if err != nil {
		return nil, fmt.Errorf("building a judge: %w", err)
	}
	informers.Start(ctx.Done())
	for kind, ok := range informers.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return nil, fmt.Errorf("the informer of %s has not synced", kind)
		}
	}
	for !judge.HasSynced() {
		if ctx.Err() != nil {
			return nil, errors.New("the judge has not synced")
		}
	}
	return judge, nil
}
