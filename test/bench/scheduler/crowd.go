// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/test/bench/plan/mix"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

const (
	// crowdNodes have room for all of the crowd that may go there: one pod in crowdShare. The others fit on none of them.
	crowdNodes = 1000
	crowdPods  = 2500
	crowdShare = 5
	// statusWrite is what an API server takes for the status of a pod that did not fit. Stock kube-scheduler waits for it in the
	// scheduling cycle, and at its own limit of 50 requests a second, which is left out here, would wait longer.
	statusWrite = 2 * time.Millisecond
)

// crowd are the pods, those that fit among those that do not.
func crowd() []kruntime.Object {
	pods := waiting(crowdPods)
	for i := range pods {
		if i%crowdShare != 0 {
			pods[i].(*corev1.Pod).Spec.NodeSelector = map[string]string{karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeOnDemand}
		}
	}
	return pods
}

// crowded measures how long a scheduler takes until all pods of the crowd that fit are bound.
func crowded(ctx context.Context, slipway bool) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := fake.NewSimpleClientset(append(size{nodes: crowdNodes}.objects(), crowd()...)...)
	var bound atomic.Int64
	done := make(chan struct{})
	client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, kruntime.Object, error) {
		if a.GetSubresource() == "binding" && bound.Add(1) == crowdPods/crowdShare {
			close(done)
		}
		return true, nil, nil
	})
	client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, kruntime.Object, error) {
		time.Sleep(statusWrite)
		return true, &corev1.Pod{}, nil
	})
	factory := kubescheduler.NewInformerFactory(client, 0, nil)
	var buys *market
	if slipway {
		catalog, err := mix.EC2(ctx)
		if err != nil {
			return 0, err
		}
		karpenter := source.New(builder.NodePool("p").UID("p").Obj(), builder.EC2NodeClass(builder.DefaultClass).Ready().Obj())
		buys = &market{karpenter: karpenter.Client, catalog: catalog, launcher: &handover{began: time.Now()}}
	}
	sched, err := build(ctx, client, factory, buys)
	if err != nil {
		return 0, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := sched.WaitForHandlersSync(ctx); err != nil {
		return 0, err
	}
	start, ended := time.Now(), make(chan struct{})
	go func() { defer close(ended); sched.Run(ctx) }()
	defer func() { cancel(); <-ended; factory.Shutdown() }()
	select {
	case <-done:
		return time.Since(start), nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-time.After(burstLimit):
		return 0, fmt.Errorf("%d of %d pods that fit bound after %v", bound.Load(), crowdPods/crowdShare, burstLimit)
	}
}

// crowds compares the two and prints the figure.
func crowds(ctx context.Context, times int) error {
	var ratios []float64
	for i := range times {
		var took [2]time.Duration
		for k := range took {
			with := (i + k) % 2
			var err error
			if took[with], err = crowded(ctx, with == 1); err != nil {
				return fmt.Errorf("a crowd of which most do not fit: %w", err)
			}
		}
		fmt.Printf("%d pods, one in %d fits on %d nodes: those bound after %.0f ms without, %.0f ms with\n", crowdPods, crowdShare, crowdNodes, ms(took[0]), ms(took[1]))
		ratios = append(ratios, took[0].Seconds()/took[1].Seconds())
	}
	fmt.Printf("figure scheduler-throughput-unfit %.3f ratio\n", median(ratios))
	return nil
}
