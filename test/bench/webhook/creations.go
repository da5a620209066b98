// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	took           []time.Duration
	p50, p99, most float64 // ms
	failures       int
}

// turns is how often creating pods with and without admission takes turns.
const turns = 4

// reliability creates pods at a steady rate with and without slipway-webhook and in every way it can be broken, and prints how
// each went. The pods are dry runs: admission sees them, and nothing is stored.
func reliability(ctx context.Context, o options) (figures []figure, failures int, err error) {
	s, err := newSite(ctx, o)
	if s != nil && s.Cluster != nil {
		defer func() { err = errors.Join(err, s.Stop()) }()
	}
	if err != nil {
		return nil, 0, err
	}
	measure := func(name, namespace string, meanwhile func(context.Context) error) (creations, error) {
		got, err := s.create(ctx, name, namespace, o, meanwhile)
		if err != nil {
			return got, fmt.Errorf("%s: %w", name, err)
		}
		failures += got.failures
		return got, nil
	}
	if _, err := measure("first", team, nil); err != nil { // connections, caches
		return nil, 0, err
	}
	before, err := measure("without-webhook", team, nil)
	if err != nil {
		return nil, 0, err
	}
	if err := s.install(ctx); err != nil {
		return nil, 0, err
	}
	if _, err := measure("just-installed", team, nil); err != nil {
		return nil, 0, err
	}
	// What else the machine does changes from minute to minute, so the two are compared in turns.
	var with, without creations
	for range turns {
		for _, side := range []struct {
			name, namespace string
			sum             *creations
		}{{"not-managed", outside, &without}, {"with-webhook", team, &with}} {
			got, err := measure(side.name, side.namespace, nil)
			if err != nil {
				return nil, 0, err
			}
			side.sum.took = append(side.sum.took, got.took...)
		}
	}
	with.sum()
	without.sum()
	with.print("all-with", nil, 0)
	without.print("all-without", nil, 0)
	figures = append(figures, figure{"webhook-added-p50", with.p50 - without.p50, "ms"}, figure{"webhook-added-p99", with.p99 - without.p99, "ms"})
	for _, x := range s.situations() {
		if err := x.change(ctx); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", x.name, err)
		}
		got, err := measure(x.name, team, x.meanwhile)
		if err != nil {
			return nil, 0, err
		}
		figures = append(figures, figure{"webhook-" + x.name + "-added-max", got.most - before.p99, "ms"})
	}
	return figures, failures, nil
}

// sum works out the percentiles.
func (c *creations) sum() {
	slices.Sort(c.took)
	c.p50, c.p99, c.most = float64(c.took[len(c.took)/2])/ms, float64(c.took[len(c.took)*99/100])/ms, float64(c.took[len(c.took)-1])/ms
}

// print says how it went, and what processor time each process spent on a creation.
func (c *creations) print(name string, spent map[string]time.Duration, n int) {
	fmt.Printf("%-20s p50 %.1f ms, p99 %.1f ms, most %.1f ms, %d failures", name, c.p50, c.p99, c.most, c.failures)
	for _, process := range slices.Sorted(maps.Keys(spent)) {
		fmt.Printf(", %s %.2f ms", process, float64(spent[process])/ms/float64(n))
	}
	fmt.Println()
}

// create creates pods at the rate for as long as the options say, and longer if meanwhile takes longer.
func (s *site) create(ctx context.Context, name, namespace string, o options, meanwhile func(context.Context) error) (creations, error) {
	wall := clock.RealClock{}
	var mu sync.Mutex
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
	profiled := s.profile(ctx, o, name)
	used := s.spent()
	start := wall.Now()
	least := int(o.creating.Seconds() * float64(o.creations))
	for i := 0; ; i++ {
		select {
		case <-over:
			if i >= least {
				wg.Wait()
				out.sum()
				spent := s.spent()
				for process := range spent {
					spent[process] -= used[process]
				}
				out.print(name, spent, i)
				return out, errors.Join(failed, profiled())
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
			_, err := s.kube.CoreV1().Pods(namespace).Create(ctx, newPod(namespace, i), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			d := wall.Since(begin)
			mu.Lock()
			defer mu.Unlock()
			out.took = append(out.took, d)
			if err != nil {
				out.failures++
			}
		})
	}
}

// newPod is the i-th pod without requests: of ReplicaSets, as pods are that are created at such a rate, and one of ten of nobody.
func newPod(namespace string, i int) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "web-", Namespace: namespace},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "registry.example/app:1"}, {Name: "proxy", Image: "registry.example/proxy:1"}}},
	}
	if owner := i % 50; i%10 != 0 {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: fmt.Sprintf("web-%d-5d4f", owner), UID: types.UID(fmt.Sprintf("rs-%d", owner)), Controller: new(true)}}
	}
	return p
}
