// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/test/cluster"
	"github.com/slipway-sh/slipway/test/ec2emu"
	"github.com/slipway-sh/slipway/test/sidebyside/document"
)

// herd is the pods of one pool: a node of the pool holds exactly full of them, and loses half.
type herd struct {
	pool, cpu, memory string
	nodes, full       int
}

// herds are five nodes in six of four cores, and one in six of sixteen.
func herds(nodes int) []herd {
	large := max(nodes/6, 1)
	return []herd{
		{pool: "small", cpu: "1800m", memory: "2Gi", nodes: nodes - large, full: 2},
		{pool: "large", cpu: "1900m", memory: "3Gi", nodes: large, full: 8},
	}
}

// settled is how a cluster came to rest.
type settled struct {
	took                time.Duration
	before, after       float64 // US dollars an hour
	nodes, bought, gone int
	evictions           int
}

// consolidation is the part that lets a half-empty cluster come to rest.
func (r *run) consolidation(ctx context.Context) error {
	t := document.Table{Head: []string{"", "nodes at first", "$/h at first", "to rest", "nodes", "$/h", "bought on the way", "terminated", "pods evicted"}}
	took, price, evictions := map[string]time.Duration{}, map[string]float64{}, map[string]float64{}
	for _, who := range r.contenders {
		err := r.on(ctx, who, setting{emulator: ec2emu.Options{BootScale: r.opts.sizes.boot}, cluster: cluster.Options{}}, func(ctx context.Context, f *field) error {
			s, err := f.consolidate(ctx, r.opts.sizes)
			if err != nil {
				return err
			}
			took[who.name], price[who.name], evictions[who.name] = s.took, s.after, float64(s.evictions)
			t.Row(who.title, fmt.Sprint(r.opts.sizes.nodes), fmt.Sprintf("%.3f", s.before), duration(s.took), fmt.Sprint(s.nodes),
				fmt.Sprintf("%.3f", s.after), fmt.Sprint(s.bought), fmt.Sprint(s.gone), fmt.Sprint(s.evictions))
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", who.title, err)
		}
	}
	r.table(t)
	r.ratios("compare-consolidation", took)
	r.shares("compare-consolidation-cost", price)
	r.shares("compare-consolidation-evictions", evictions)
	return nil
}

// consolidate makes the half-empty cluster, opens its pools, and waits until it is at rest.
func (f *field) consolidate(ctx context.Context, size sizes) (settled, error) {
	all := herds(size.nodes)
	for _, h := range all {
		if err := f.fill(ctx, h); err != nil {
			return settled{}, err
		}
	}
	for _, h := range all {
		if err := f.halve(ctx, h); err != nil {
			return settled{}, err
		}
	}
	if err := f.rest(ctx); err != nil {
		return settled{}, err
	}
	start := f.state()
	deleted := f.watch.Deleted("")
	if err := f.open(ctx, all); err != nil {
		return settled{}, err
	}
	began := time.Now()
	last, end, err := f.calm(ctx, start, size.calm)
	if err != nil {
		return settled{}, err
	}
	out := settled{took: last.Sub(began), before: start.price(), after: end.price(), nodes: len(end.instances), evictions: f.watch.Deleted("") - deleted}
	for id := range end.instances {
		if _, was := start.instances[id]; !was {
			out.bought++
		}
	}
	for id := range start.instances {
		if _, is := end.instances[id]; !is {
			out.gone++
		}
	}
	return out, nil
}

// fill has the contender buy the herd's nodes, all of them full.
func (f *field) fill(ctx context.Context, h herd) error {
	if err := f.deployment(ctx, h.pool, h.nodes*h.full, f.who.spec(h.pool, h.cpu, h.memory)); err != nil {
		return err
	}
	if err := f.await(ctx, h.pool+"-", h.nodes*h.full); err != nil {
		return err
	}
	on := f.podsByNode(h.pool + "-")
	for node, pods := range on {
		if len(pods) != h.full {
			return fmt.Errorf("node %q has %d pods of %q instead of %d: this is not the cluster to compare", node, len(pods), h.pool, h.full)
		}
	}
	return nil
}

func (f *field) podsByNode(prefix string) map[string][]string {
	on := map[string][]string{}
	for _, t := range f.watch.Pods(prefix) {
		on[t.Node] = append(on[t.Node], t.Pod.Name)
	}
	return on
}

// halve takes half of the pods from each node of the herd: those that are to go are the cheapest to delete.
func (f *field) halve(ctx context.Context, h herd) error {
	for _, pods := range f.podsByNode(h.pool + "-") {
		slices.Sort(pods)
		for _, name := range pods[:h.full/2] {
			patch := []byte(`{"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"-1000"}}}`)
			if _, err := f.bed.Client.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return fmt.Errorf("marking pod %q: %w", name, err)
			}
		}
	}
	left := h.nodes * h.full / 2
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, left)
	if _, err := f.bed.Client.AppsV1().Deployments(namespace).Patch(ctx, h.pool, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("scaling Deployment %q: %w", h.pool, err)
	}
	for {
		changed := f.watch.Changed()
		if n, _, _ := f.watch.Counts(h.pool + "-"); n == left {
			break
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
	for node, pods := range f.podsByNode(h.pool + "-") {
		if len(pods) != h.full/2 {
			return fmt.Errorf("node %q was left with %d pods of %q instead of %d: this is not the cluster to compare", node, len(pods), h.pool, h.full/2)
		}
	}
	return nil
}

// open lets the pools consolidate, at once and without a bound, into everything that pool general may buy.
func (f *field) open(ctx context.Context, all []herd) error {
	kube, err := client.New(f.bed.Cluster.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	var general karpv1.NodePool
	if err := kube.Get(ctx, client.ObjectKey{Name: "general"}, &general); err != nil {
		return fmt.Errorf("reading NodePool %q: %w", "general", err)
	}
	for _, h := range all {
		var pool karpv1.NodePool
		if err := kube.Get(ctx, client.ObjectKey{Name: h.pool}, &pool); err != nil {
			return fmt.Errorf("reading NodePool %q: %w", h.pool, err)
		}
		old := pool.DeepCopy()
		pool.Spec.Template.Spec.Requirements = general.Spec.Template.Spec.Requirements
		pool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized
		pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
		pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
		if err := kube.Patch(ctx, &pool, client.MergeFrom(old)); err != nil {
			return fmt.Errorf("opening NodePool %q: %w", h.pool, err)
		}
	}
	return nil
}

// state is what rest is about: which instances there are, with their prices, and where pods run.
type state struct {
	instances map[string]float64
	pods      map[string]string
}

func (s state) price() float64 {
	sum := 0.0
	for _, p := range s.instances {
		sum += p
	}
	return sum
}

func (f *field) state() state {
	s := state{instances: map[string]float64{}, pods: map[string]string{}}
	for _, i := range f.bed.Emulator.Instances() {
		if i.State == "pending" || i.State == "running" {
			s.instances[i.ID] = i.Price
		}
	}
	for _, t := range f.watch.Pods("") {
		s.pods[t.Pod.Name] = t.Node
	}
	return s
}

// waiting says whether a pod has no node.
func (s state) waiting() bool {
	for _, node := range s.pods {
		if node == "" {
			return true
		}
	}
	return false
}

const (
	// look is how often the cluster is looked at: how exactly its rest is known.
	look = 100 * time.Millisecond
	// restLimit bounds the wait for rest.
	restLimit = 20 * time.Minute
)

// calm waits until nothing has changed for a time and no pod waits. It returns when the last change was seen.
func (f *field) calm(ctx context.Context, now state, calm time.Duration) (time.Time, state, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, restLimit, fmt.Errorf("not at rest within %v", restLimit))
	defer cancel()
	tick := time.NewTicker(look)
	defer tick.Stop()
	last := time.Now()
	for time.Since(last) < calm || now.waiting() {
		select {
		case <-ctx.Done():
			return time.Time{}, state{}, context.Cause(ctx)
		case <-tick.C:
		}
		next := f.state()
		if !maps.Equal(next.instances, now.instances) || !maps.Equal(next.pods, now.pods) {
			last, now = time.Now(), next
		}
	}
	return last, now, nil
}
