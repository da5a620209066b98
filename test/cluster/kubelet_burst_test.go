// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/test/cluster"
)

// TestBurst is 100 nodes and 1,000 pods, bound by hand.
func TestBurst(t *testing.T) {
	const nodes, podsPerNode = 100, 10
	c := shared.Get(t)
	ns, client := namespace(t, c), clientFor(t, c.Config())
	k := cluster.StartKubelet(t, c, cluster.KubeletOptions{LeaseInterval: 500 * time.Millisecond})
	start := time.Now()
	each(t, nodes, func(i int) error {
		m := machineNamed(fmt.Sprintf("burst-%d", i))
		m.ReadyAfter = 0
		return k.Join(t.Context(), m)
	})
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		selector := metav1.ListOptions{LabelSelector: "team=blue"}
		if err := client.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, selector); err != nil {
			t.Error(err)
		}
	})
	joined := time.Since(start)
	each(t, nodes*podsPerNode, func(i int) error {
		pod := podNamed(fmt.Sprintf("p-%d", i), "100m")
		pod.Spec.NodeName = fmt.Sprintf("burst-%d", i%nodes)
		_, err := client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	})
	created := time.Since(start)
	eventually(t, "all pods to run", func(ctx context.Context) string {
		pods, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err.Error()
		}
		running := 0
		for _, pod := range pods.Items {
			if pod.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running != nodes*podsPerNode {
			return fmt.Sprintf("%d running", running)
		}
		return ""
	})
	t.Logf("%d nodes joined after %v, %d pods created after %v, running after %v", nodes, joined, nodes*podsPerNode, created, time.Since(start))
}

// each calls f for 0…n-1, 50 at a time, and fails the test on an error.
func each(t *testing.T, n int, f func(int) error) {
	t.Helper()
	limit := make(chan struct{}, 50)
	errs := make(chan error, n)
	for i := range n {
		limit <- struct{}{}
		go func() {
			errs <- f(i)
			<-limit
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}
