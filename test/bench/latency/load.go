// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slipway-sh/slipway/test/ec2emu"
)

// idleFor is how long nothing happens before a pod of latency-idle.
const idleFor = time.Minute

// afterIdleness creates pods after idleness.
func (m *measurer) afterIdleness(ctx context.Context, n int) error {
	created := map[string]time.Time{}
	for i := range warmUp {
		if err := m.one(ctx, fmt.Sprintf("warm-up-%d", i), created); err != nil {
			return err
		}
	}
	for i := range n {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(idleFor):
		}
		if err := m.one(ctx, fmt.Sprintf("idle-%d", i), created); err != nil {
			return err
		}
	}
	for _, t := range m.watch.Pods("idle-") {
		m.afterRest = append(m.afterRest, max(t.Requested.Sub(created[t.Pod.Name]), 0))
	}
	return nil
}

const (
	// loadNode is a node of nobody's with room for all of the load.
	loadNode = "load"
	// loadLife is how long a pod of the load exists.
	loadLife = 2 * time.Second
	// loadCreators bounds the pods of the load being created at a time.
	loadCreators = 16
)

// loaded measures single pods while others come and go.
func (m *measurer) loaded(ctx context.Context, n, rate int) error {
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10k"), corev1.ResourceMemory: resource.MustParse("10Ti"), corev1.ResourcePods: resource.MustParse("100k")}
	machine := ec2emu.Machine{NodeName: loadNode, OS: "linux", Arch: "amd64", ProviderID: "load:///" + loadNode, Labels: map[string]string{"bench": loadNode}, Capacity: room, Allocatable: room}
	if err := m.bed.Kubelet.Join(ctx, machine); err != nil {
		return err
	}
	created := map[string]time.Time{}
	for i := range warmUp {
		if err := m.one(ctx, fmt.Sprintf("warm-up-%d", i), created); err != nil {
			return err
		}
	}
	loading, stop := context.WithCancel(ctx)
	defer stop()
	var made atomic.Int64
	ended := make(chan struct{})
	go func() { defer close(ended); m.load(loading, rate, &made) }()
	began := time.Now()
	for i := range n {
		if err := m.one(ctx, fmt.Sprintf("loaded-%d", i), created); err != nil {
			return err
		}
	}
	m.loadRate = float64(made.Load()) / time.Since(began).Seconds()
	stop()
	<-ended
	for _, t := range m.watch.Pods("loaded-") {
		m.underLoad = append(m.underLoad, max(t.Requested.Sub(created[t.Pod.Name]), 0))
	}
	return nil
}

// load creates pods at a rate and deletes them after their life, until ctx ends. What the API server does not take in time
// is left out: the rate that came of it is told with the figure.
func (m *measurer) load(ctx context.Context, rate int, made *atomic.Int64) {
	pods := m.bed.Client.CoreV1().Pods("default")
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	slots := make(chan struct{}, loadCreators)
	var all sync.WaitGroup
	defer all.Wait()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		select {
		case slots <- struct{}{}:
		default:
			continue
		}
		name := fmt.Sprintf("load-%d", i)
		all.Go(func() {
			_, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels.Set{"load": "yes"}}, Spec: spec(loadNode, "10m", "10Mi")}, metav1.CreateOptions{})
			<-slots
			if err != nil {
				return
			}
			made.Add(1)
			select {
			case <-ctx.Done():
			case <-time.After(loadLife):
				_ = pods.Delete(ctx, name, metav1.DeleteOptions{}) // the bed goes with what is left
			}
		})
	}
}
