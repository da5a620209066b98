// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/bench/plan/mix"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

// burstLimit bounds a burst; reaching it is a failure, not a figure.
const burstLimit = 2 * time.Minute

// burst is how long after the scheduler began to run the first and the last of the pods had their nodes' launch handed over.
type burst struct {
	first, last time.Duration
	claims      int
	postFilter  bed.Histogram // seconds
}

// handover notes the pods of the claims that are to be launched.
type handover struct {
	began time.Time

	mu  sync.Mutex
	got burst
}

// Launch implements provisioner.Launcher.
func (h *handover) Launch(_ context.Context, claims []*karpv1.NodeClaim) {
	now := time.Since(h.began)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got.claims += len(claims)
	if h.got.first == 0 {
		h.got.first = now
	}
	h.got.last = now
}

// planned waits until every pod has a place: on a node that was bought for it, or on one that was bought for those before it.
func planned(ctx context.Context, prov *provisioner.Provisioner, pods []kruntime.Object) error {
	ctx, cancel := context.WithTimeoutCause(ctx, burstLimit, fmt.Errorf("not within %v", burstLimit))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for len(pods) > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d pods have no place: %w", len(pods), context.Cause(ctx))
		case <-tick.C:
		}
		for len(pods) > 0 {
			if waits, known := prov.Waits(pods[0].(*corev1.Pod).UID); waits || !known {
				break
			}
			pods = pods[1:]
		}
	}
	return nil
}

// bursting has n pods that fit nowhere be there when the scheduler starts, beside one node that is full.
func bursting(ctx context.Context, n int) (burst, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	catalog, err := mix.EC2(ctx)
	if err != nil {
		return burst{}, err
	}
	karpenter := source.New(builder.NodePool("p").UID("p").Obj(), builder.EC2NodeClass(builder.DefaultClass).Ready().Obj())
	objects := size{nodes: 1}.objects()
	objects[0].(*corev1.Node).Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
	pods := waiting(n)
	objects = append(objects, pods...)
	client := fake.NewSimpleClientset(objects...)
	client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, kruntime.Object, error) {
		return true, &corev1.Pod{}, nil // statuses are answered at once, and nobody watches them
	})
	factory := kubescheduler.NewInformerFactory(client, 0, nil)
	h := &handover{}
	buys := &market{karpenter: karpenter.Client, catalog: catalog, launcher: h}
	sched, err := build(ctx, client, factory, buys)
	if err != nil {
		return burst{}, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := sched.WaitForHandlersSync(ctx); err != nil {
		return burst{}, err
	}
	ended := make(chan struct{})
	h.began = time.Now()
	go func() { defer close(ended); sched.Run(ctx) }()
	defer func() { cancel(); <-ended; factory.Shutdown() }()
	if err := planned(ctx, buys.prov, pods); err != nil {
		return burst{}, err
	}
	if !buys.prov.Drain(ctx) { // the last claims are being written
		return burst{}, context.Cause(ctx)
	}
	var m dto.Metric
	if err := buys.metrics.PostFilter.Write(&m); err != nil {
		return burst{}, fmt.Errorf("reading the plugin's metrics: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got.postFilter = bed.HistogramOf(m.GetHistogram())
	return h.got, nil
}

// waiting are n pods without a node.
func waiting(n int) []kruntime.Object {
	out := make([]kruntime.Object, 0, n)
	for i := range n {
		name := fmt.Sprintf("burst-%d", i)
		out = append(out, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), CreationTimestamp: metav1.Now()},
			Spec: corev1.PodSpec{
				SchedulerName: corev1.DefaultSchedulerName,
				Containers: []corev1.Container{{Name: "c", Image: "registry.example/c:1", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("150m"), corev1.ResourceMemory: resource.MustParse("256Mi"),
				}}}},
			},
		})
	}
	return out
}

// bursts measures bursts of 1,000 and 10,000 pods and prints their figures.
func bursts(ctx context.Context, times int) error {
	var firsts, small, large []float64
	var postFilter bed.Histogram
	for range times {
		for _, n := range []int{1000, 10000} {
			b, err := bursting(ctx, n)
			if err != nil {
				return fmt.Errorf("a burst of %d pods: %w", n, err)
			}
			fmt.Printf("burst of %d pods: first launch after %.1f ms, last of %d after %.0f ms\n", n, ms(b.first), b.claims, ms(b.last))
			if err := postFilter.Add(b.postFilter); err != nil {
				return err
			}
			firsts = append(firsts, ms(b.first))
			if n == 1000 {
				small = append(small, b.last.Seconds())
			} else {
				large = append(large, b.last.Seconds())
			}
		}
	}
	fmt.Printf("%d cycles in PostFilter\nfigure postfilter-p50 %.3f us\nfigure postfilter-p99 %.3f us\n", postFilter.Count(), postFilter.Quantile(0.5)*1e6, postFilter.Quantile(0.99)*1e6)
	fmt.Printf("figure burst-first %.1f ms\nfigure burst-1000 %.3f s\nfigure burst-10000 %.3f s\n", median(firsts), median(small), median(large))
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
