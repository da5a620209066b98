// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/cluster"
	"github.com/slipway-sh/slipway/test/ec2emu"
	"github.com/slipway-sh/slipway/test/ec2emu/data"
	"github.com/slipway-sh/slipway/test/sidebyside/document"
)

// spec is a pod of the contender's on nodes with the label bench=pool.
func (c contender) spec(pool, cpu, memory string) corev1.PodSpec {
	return corev1.PodSpec{
		SchedulerName: c.scheduler, NodeSelector: map[string]string{"bench": pool}, TerminationGracePeriodSeconds: new(int64(0)),
		Containers: []corev1.Container{{Name: "c", Image: "registry.example/c:1", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}}}},
	}
}

// warmUp is how many single pods are not counted: the API server compiles the CRDs' rules and the processes open their
// connections with the first few.
const warmUp = 2

// one creates a pod that needs a node of its own, and waits until it runs. It returns when the API server had answered.
func (f *field) one(ctx context.Context, name string) (time.Time, error) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: f.who.spec("general", "3", "1Gi")}
	if _, err := f.bed.Client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return time.Time{}, fmt.Errorf("creating pod %q: %w", name, err)
	}
	created := time.Now()
	return created, f.await(ctx, name, 1)
}

// way is how long a pod took from its creation to the request for its node, and to its binding.
type way struct{ requested, bound []time.Duration }

// singles measures n pods, one at a time, each when the cluster has come to rest and pause has passed.
func (f *field) singles(ctx context.Context, n int, pause time.Duration) (way, error) {
	created := map[string]time.Time{}
	for i := range warmUp + n {
		name := fmt.Sprintf("warm-up-%d", i)
		if i >= warmUp {
			name = fmt.Sprintf("single-%d", i)
			select {
			case <-ctx.Done():
				return way{}, context.Cause(ctx)
			case <-time.After(pause):
			}
		}
		if err := f.rest(ctx); err != nil {
			return way{}, err
		}
		var err error
		if created[name], err = f.one(ctx, name); err != nil {
			return way{}, err
		}
	}
	var w way
	requested := f.requested()
	for _, t := range f.watch.Pods("single-") {
		at, ok := requested[t.Node]
		if !ok {
			return way{}, fmt.Errorf("pod %q runs on node %q, for which no CreateFleet request was made", t.Pod.Name, t.Node)
		}
		w.requested = append(w.requested, max(at.Sub(created[t.Pod.Name]), 0))
		w.bound = append(w.bound, t.Bound.Sub(created[t.Pod.Name]))
	}
	return w, nil
}

// single is the part that measures lone pods: n of them, each after a pause, on an account that lacks the cheapest offerings if
// short says so.
func (r *run) single(name string, n int, pause time.Duration, short bool) part {
	return func(ctx context.Context) error {
		t := document.Table{Head: []string{"", "pods", "created → requested, p50", "p99", "created → bound, p50", "p99"}}
		got := map[string]time.Duration{}
		s := setting{emulator: ec2emu.Options{InstantBoot: true}}
		for _, who := range r.contenders {
			err := r.on(ctx, who, s, func(ctx context.Context, f *field) error {
				if short {
					if err := outOfStock(f.bed.Emulator); err != nil {
						return err
					}
				}
				w, err := f.singles(ctx, n, pause)
				if err != nil {
					return err
				}
				got[who.name] = bed.Quantile(w.requested, 0.5)
				t.Row(who.title, fmt.Sprint(n), duration(got[who.name]), duration(bed.Quantile(w.requested, 0.99)), duration(bed.Quantile(w.bound, 0.5)), duration(bed.Quantile(w.bound, 0.99)))
				return nil
			})
			if err != nil {
				return fmt.Errorf("%s: %w", who.title, err)
			}
		}
		r.table(t)
		r.ratios("compare-latency-"+name, got)
		return nil
	}
}

// dry is how many offerings EC2 is out of in the part shortage.
const dry = 50

// outOfStock takes the cheapest offerings of pool general that hold a single pod out of stock: on demand, all zones with a subnet.
func outOfStock(e *ec2emu.Emulator) error {
	facts, err := data.Load()
	if err != nil {
		return err
	}
	var general karpv1.NodePool
	document, _, _ := bytes.Cut(pools, []byte("\n---\n"))
	if err := yaml.Unmarshal(document, &general); err != nil {
		return fmt.Errorf("reading pool general: %w", err)
	}
	values := map[string][]string{}
	for _, q := range general.Spec.Template.Spec.Requirements {
		values[q.Key] = q.Values
	}
	var types []string
	for _, family := range values["karpenter.k8s.aws/instance-family"] {
		for _, size := range values["karpenter.k8s.aws/instance-size"] {
			if name := family + "." + size; facts.Prices[name] > 0 {
				types = append(types, name)
			}
		}
	}
	slices.SortStableFunc(types, func(a, b string) int { return cmp.Compare(facts.Prices[a], facts.Prices[b]) })
	left := dry
	for _, t := range types {
		for _, zone := range []string{"us-east-1a", "us-east-1b", "us-east-1c"} {
			if left > 0 {
				e.SetStock(ec2emu.Pool{InstanceType: t, Zone: zone, CapacityType: "on-demand"}, 0)
				left--
			}
		}
	}
	return nil
}

// defaultQPS is what kube-controller-manager may ask of the API server in a second unless it is told otherwise.
const defaultQPS = 20

// deployment creates a Deployment of n pods.
func (f *field) deployment(ctx context.Context, name string, n int, spec corev1.PodSpec) error {
	labels := map[string]string{"app": name}
	_, err := f.bed.Client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(n)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating Deployment %q: %w", name, err)
	}
	return nil
}

// burst is the part that measures a Deployment of n pods.
func (r *run) burst(n int) part {
	return func(ctx context.Context) error {
		size := n
		if r.opts.short {
			size = n / 10
		}
		t := document.Table{Head: []string{"", "pods", "first created → first requested", "→ last requested", "→ last bound", "nodes bought", "nodes no pod came to", "$/h"}}
		got := map[string]time.Duration{}
		s := setting{emulator: ec2emu.Options{BootScale: r.opts.sizes.boot}, cluster: cluster.Options{ControllerQPS: defaultQPS}}
		for _, who := range r.contenders {
			err := r.on(ctx, who, s, func(ctx context.Context, f *field) error {
				b, err := f.burst(ctx, size)
				if err != nil {
					return err
				}
				got[who.name] = b.last
				t.Row(who.title, fmt.Sprint(size), duration(b.first), duration(b.last), duration(b.bound), fmt.Sprint(b.bought), fmt.Sprint(b.unused), fmt.Sprintf("%.3f", b.price))
				return nil
			})
			if err != nil {
				return fmt.Errorf("%s: %w", who.title, err)
			}
		}
		r.table(t)
		r.ratios(fmt.Sprintf("compare-latency-%d", n), got)
		return nil
	}
}

// burstResult counts from when the first pod was seen.
type burstResult struct {
	first, last, bound time.Duration
	bought, unused     int
	price              float64
}

// burst scales a Deployment from 0 to n, after a few single pods.
func (f *field) burst(ctx context.Context, n int) (burstResult, error) {
	for i := range warmUp {
		if _, err := f.one(ctx, fmt.Sprintf("warm-up-%d", i)); err != nil {
			return burstResult{}, err
		}
	}
	if err := f.rest(ctx); err != nil {
		return burstResult{}, err
	}
	before := len(f.bed.Emulator.Instances())
	if err := f.deployment(ctx, "burst", n, f.who.spec("general", "250m", "512Mi")); err != nil {
		return burstResult{}, err
	}
	if err := f.await(ctx, "burst-", n); err != nil {
		return burstResult{}, err
	}
	var b burstResult
	var created, bound time.Time
	used := map[string]bool{}
	for _, t := range f.watch.Pods("burst-") {
		if created.IsZero() || t.Created.Before(created) {
			created = t.Created
		}
		if t.Bound.After(bound) {
			bound = t.Bound
		}
		used[t.Node] = true
	}
	requested := f.requested()
	var first, last time.Time
	for _, i := range f.bed.Emulator.Instances()[before:] {
		b.bought++
		b.price += i.Price
		if !used[i.NodeName] {
			b.unused++
		}
		at := requested[i.NodeName]
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	if last.IsZero() {
		return burstResult{}, fmt.Errorf("no instance was bought for %d pods", n)
	}
	b.first, b.last, b.bound = max(first.Sub(created), 0), last.Sub(created), bound.Sub(created)
	return b, nil
}
