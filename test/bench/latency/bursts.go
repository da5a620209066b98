// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/test/bed"
)

// atOnce has all pods of a burst in the API server before the scheduler sees the first: it is stopped while they are created.
func (m *measurer) atOnce(ctx context.Context, n int) error {
	created := map[string]time.Time{}
	for i := range warmUp {
		if err := m.one(ctx, fmt.Sprintf("warm-up-%d", i), created); err != nil {
			return err
		}
	}
	if err := m.rest(ctx); err != nil {
		return err
	}
	scheduler := m.bed.Process(bed.Scheduler)
	if err := scheduler.Pause(); err != nil {
		return err
	}
	err := m.createAll(ctx, n)
	resumed := time.Now()
	if err := errors.Join(err, scheduler.Resume()); err != nil {
		return err
	}
	if err := m.await(ctx, "there-", n); err != nil {
		return err
	}
	var first, last time.Time
	for _, t := range m.watch.Pods("there-") {
		if t.Requested.IsZero() {
			return fmt.Errorf("pod %q runs, but no CreateFleet request was made for it", t.Pod.Name)
		}
		if first.IsZero() || t.Requested.Before(first) {
			first = t.Requested
		}
		last = latest(last, t.Requested)
	}
	m.burstFirst, m.burstAll = first.Sub(resumed), last.Sub(resumed)
	return nil
}

// createAll creates the pods there-0 to there-<n-1>.
func (m *measurer) createAll(ctx context.Context, n int) error {
	var all sync.WaitGroup
	slots, errs := make(chan struct{}, loadCreators), make([]error, n)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("there-%d", i)}, Spec: spec("dense", "150m", "256Mi")}
			_, errs[i] = m.bed.Client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// aheadLimit bounds the wait for replicas that are created at the controllers' own rate.
const aheadLimit = 3 * time.Minute

// ahead scales a Deployment and notes how long after its first pod failed the last node was asked for.
func (m *measurer) ahead(ctx context.Context, n int, last *time.Duration) error {
	created := map[string]time.Time{}
	if err := m.one(ctx, "warm-up", created); err != nil {
		return err
	}
	if err := m.rest(ctx); err != nil {
		return err
	}
	labels := map[string]string{"app": "ahead"}
	_, err := m.bed.Client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "ahead"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(n)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec("dense", "150m", "256Mi")},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating Deployment %q: %w", "ahead", err)
	}
	ctx, cancel := context.WithTimeout(ctx, aheadLimit)
	defer cancel()
	if err := m.awaitWithin(ctx, "ahead-", n); err != nil {
		return err
	}
	var failed, requested time.Time
	for _, t := range m.watch.Pods("ahead-") {
		if !t.Offered.IsZero() && (failed.IsZero() || t.Offered.Before(failed)) {
			failed = t.Offered
		}
		requested = latest(requested, t.Requested)
	}
	*last = requested.Sub(failed)
	return nil
}
