// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

// situation is a state of admission in which pods are created.
type situation struct {
	name string
	// change brings it about; meanwhile, which may be nil, happens while pods are created.
	change, meanwhile func(context.Context) error
}

// creations is how creating pods went.
type creations struct {
	p50, p99, most float64 // ms
	failures       int
}

// reliability creates pods at a steady rate with and without slipway-webhook and in every way it can be broken, and prints how
// each went. The pods are dry runs: admission sees them, and nothing is stored.
func reliability(ctx context.Context, o options) (figures []figure, failures int, err error) {
	s, err := newSite(ctx)
	if s != nil && s.Cluster != nil {
		defer func() { err = errors.Join(err, s.Stop()) }()
	}
	if err != nil {
		return nil, 0, err
	}
	measure := func(name string, meanwhile func(context.Context) error) (creations, error) {
		got, err := create(ctx, s.kube, o, meanwhile)
		if err != nil {
			return got, fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("%-20s p50 %.1f ms, p99 %.1f ms, most %.1f ms, %d failures\n", name, got.p50, got.p99, got.most, got.failures)
		failures += got.failures
		return got, nil
	}
	if _, err := measure("first", nil); err != nil { // connections, caches
		return nil, 0, err
	}
	before, err := measure("without-webhook", nil)
	if err != nil {
		return nil, 0, err
	}
	if err := s.install(ctx); err != nil {
		return nil, 0, err
	}
	if _, err := measure("just-installed", nil); err != nil {
		return nil, 0, err
	}
	for i, x := range s.situations() {
		if err := x.change(ctx); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", x.name, err)
		}
		got, err := measure(x.name, x.meanwhile)
		if err != nil {
			return nil, 0, err
		}
		if i == 0 {
			figures = append(figures, figure{"webhook-added-p99", got.p99 - before.p99, "ms"})
			continue
		}
		figures = append(figures, figure{"webhook-" + x.name + "-added-max", got.most - before.p99, "ms"})
	}
	return figures, failures, nil
}

// create creates pods at the rate for as long as the options say, and longer if meanwhile takes longer.
func create(ctx context.Context, kube kubernetes.Interface, o options, meanwhile func(context.Context) error) (creations, error) {
	wall := clock.RealClock{}
	var mu sync.Mutex
	var took []time.Duration
	out := creations{}
	var wg sync.WaitGroup
	var failed error
	over := make(chan struct{})
	go func() {
		defer close(over)
		if meanwhile != nil {
			failed = meanwhile(ctx)
		}
	}()
	start := wall.Now()
	least := int(o.creating.Seconds() * float64(o.creations))
	for i := 0; ; i++ {
		select {
		case <-over:
			if i >= least {
				wg.Wait()
				slices.Sort(took)
				out.p50 = float64(took[len(took)/2]) / ms
				out.p99, out.most = float64(took[len(took)*99/100])/ms, float64(took[len(took)-1])/ms
				return out, failed
			}
		default:
		}
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		if wait := start.Add(time.Duration(i) * time.Second / time.Duration(o.creations)).Sub(wall.Now()); wait > 0 {
			wall.Sleep(wait)
		}
		wg.Go(func() {
			begin := wall.Now()
			_, err := kube.CoreV1().Pods(team).Create(ctx, newPod(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			d := wall.Since(begin)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, d)
			if err != nil {
				out.failures++
			}
		})
	}
}

// newPod is a pod without requests.
func newPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "web-", Namespace: team},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "registry.example/app:1"}, {Name: "proxy", Image: "registry.example/proxy:1"}}},
	}
}
