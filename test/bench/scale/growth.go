// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/bench/fleet"
)

// growth is a cluster that grows, and what was measured at its sizes.
type growth struct {
	*fleet.Fleet
	options

	at     []stage
	filled map[string]bool // nodes that have their pods
}

// stage is what was measured at a size.
type stage struct {
	nodes         int
	latency       []time.Duration
	p50, p99      time.Duration
	steady        fleet.Steady
	callsAMinute  float64
	cpu, memory   float64 // of the process that uses most
	bought, wrote time.Duration
}

// stage grows the cluster to n nodes and measures there.
func (g *growth) stage(ctx context.Context, n int) error {
	before := 0
	if len(g.at) > 0 {
		before = g.at[len(g.at)-1].nodes
	}
	s := stage{nodes: n}
	began := time.Now()
	if err := g.Buy(ctx, fmt.Sprintf("large-%d", n), n-before); err != nil {
		return err
	}
	s.bought = time.Since(began)
	if err := g.write(ctx, n); err != nil {
		return err
	}
	s.wrote = time.Since(began) - s.bought
	if err := g.Rest(ctx, g.calm); err != nil {
		return err
	}
	from := time.Now()
	var err error
	if s.steady, err = g.Steady(ctx, g.watched, 1); err != nil {
		return err
	}
	calls, err := g.Calls.Between(from, from.Add(s.steady.Took))
	if err != nil {
		return err
	}
	s.callsAMinute = float64(sum(calls)) / s.steady.Took.Minutes()
	if s.latency, err = g.singlePods(ctx, n); err != nil {
		return err
	}
	s.p50, s.p99 = bed.Quantile(s.latency, 0.5), bed.Quantile(s.latency, 0.99)
	for _, p := range fleet.Processes() {
		s.cpu, s.memory = max(s.cpu, s.steady.CPU[p]), max(s.memory, s.steady.Memory[p])
	}
	g.at = append(g.at, s)
	g.tell(&s)
	return nil
}

func sum(calls map[bed.Call]int) int {
	n := 0
	for _, c := range calls {
		n += c
	}
	return n
}

func (g *growth) tell(s *stage) {
	fmt.Printf("%d nodes, %d pods (nodes bought in %.0f s, pods written in %.0f s): single pods p50 %.1f ms, p99 %.1f ms; %.0f requests to the API server a minute;",
		s.nodes, s.nodes*g.podsANode, s.bought.Seconds(), s.wrote.Seconds(), ms(s.p50), ms(s.p99), s.callsAMinute)
	for _, p := range fleet.Processes() {
		fmt.Printf(" %s %.2f %% of a core, %.0f MB;", p, s.steady.CPU[p], s.steady.Memory[p])
	}
	fmt.Println()
}

// writers is how many pods are written at a time.
const writers = 32

// write gives every node its other pods, bound already, and waits until they run.
func (g *growth) write(ctx context.Context, nodes int) error {
	list, err := g.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	if len(list.Items) != nodes {
		return fmt.Errorf("there are %d nodes, want %d", len(list.Items), nodes)
	}
	before := len(g.filled)
	var fresh []string
	for i := range list.Items {
		if name := list.Items[i].Name; !g.filled[name] {
			fresh = append(fresh, name)
			g.filled[name] = true
		}
	}
	work, errs := make(chan job), make([]error, writers)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for j := range work {
				if errs[w] == nil {
					errs[w] = g.fill(ctx, j)
				}
			}
		})
	}
	for i, node := range fresh {
		work <- job{node, before + i}
	}
	close(work)
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return g.Await(ctx, "written-", len(g.filled)*(g.podsANode-1))
}

// job is a node to be given its pods; serial is part of their names.
type job struct {
	node   string
	serial int
}

// fill writes the other pods of a node.
func (g *growth) fill(ctx context.Context, j job) error {
	for i := range g.podsANode - 1 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("written-%d-%d", j.serial, i), Labels: map[string]string{"app": fmt.Sprintf("app-%d", i)}}, Spec: fleet.Spec("20m", "32Mi")}
		pod.Spec.NodeName = j.node
		if _, err := g.Client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("writing pod %q: %w", pod.Name, err)
		}
	}
	return nil
}

// quiet is how long nothing may have happened before the next single pod is created.
const quiet = 150 * time.Millisecond

// warmUp is how many pods at each size are not counted: they open connections and fill caches.
const warmUp = 3

// singlePods creates pods that need a node each, one at a time, deletes them, and waits for their nodes to go.
func (g *growth) singlePods(ctx context.Context, nodes int) ([]time.Duration, error) {
	created := map[string]time.Time{}
	for i := range warmUp + g.singles {
		if err := g.Rest(ctx, quiet); err != nil {
			return nil, err
		}
		name := fmt.Sprintf("single-%d-%d-", nodes, i)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name + "x"}, Spec: fleet.Large()}
		if _, err := g.Client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("creating pod %q: %w", pod.Name, err)
		}
		created[pod.Name] = time.Now()
		if err := g.Await(ctx, name, 1); err != nil {
			return nil, err
		}
	}
	var out []time.Duration
	for _, t := range g.Watch.Pods(fmt.Sprintf("single-%d-", nodes)) {
		if t.Requested.IsZero() {
			return nil, fmt.Errorf("pod %q runs, but no CreateFleet request was made for it", t.Pod.Name)
		}
		out = append(out, max(t.Requested.Sub(created[t.Pod.Name]), 0))
	}
	if err := g.Client.CoreV1().Pods("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "!app"}); err != nil {
		return nil, fmt.Errorf("deleting the single pods: %w", err)
	}
	return out, g.awaitNodes(ctx, nodes)
}

// awaitNodes waits until there are n nodes: those that were bought for single pods are empty now, and consolidation takes them away.
func (g *growth) awaitNodes(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, fleet.Limit, fmt.Errorf("not within %v", fleet.Limit))
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		list, err := g.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return fmt.Errorf("listing nodes: %w", err)
		}
		if len(list.Items) <= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for empty nodes to go: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// exponent is the slope of the line through the points (nodes, value) with both axes logarithmic, by least squares.
func exponent(at []stage, value func(*stage) float64) float64 {
	n, x, y, xx, xy := 0.0, 0.0, 0.0, 0.0, 0.0
	for i := range at {
		a, b := math.Log(float64(at[i].nodes)), math.Log(value(&at[i]))
		n, x, y, xx, xy = n+1, x+a, y+b, xx+a*a, xy+a*b
	}
	return (n*xy - x*y) / (n*xx - x*x)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
