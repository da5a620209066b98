// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/test/bed"
)

// measurer collects the samples.
type measurer struct {
	bed   *bed.Bed
	watch *bed.Observer

	single, decision, added []time.Duration
	underLoad, afterRest    []time.Duration
	loadRate                float64 // pods a second of the load, as it turned out
	burstAll, burstFirst    time.Duration
	aheadLast, aheadOffLast time.Duration
	toOffer, toPlan, toSent []time.Duration // the legs of single
	smallBurst              []time.Duration
	largeLast, largeBind    time.Duration
	bindUsable, bindReady   []time.Duration
	bindPods                int
	largeCalls, largeBought int
	write, plainWrite       []time.Duration          // of an empty NodeClaim at rest, of a ConfigMap
	steps                   map[string]time.Duration // the median of each step of the way of single pods, as the scheduler measured it

	second             int
	offPlan, forgotten float64
	postFilter         bed.Histogram // seconds, over all parts
}

// limit bounds each wait; reaching it is a failure, not a figure.
const limit = 2 * time.Minute

func spec(pool, cpu, memory string) corev1.PodSpec {
	return corev1.PodSpec{
		SchedulerName: "slipway", NodeSelector: map[string]string{"bench": pool}, TerminationGracePeriodSeconds: new(int64(0)),
		Containers: []corev1.Container{{Name: "c", Image: "registry.example/c:1", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}}}},
	}
}

// quiet is how long nothing may have happened in the cluster before the next single pod is created.
const quiet = 150 * time.Millisecond

// singles creates pods one at a time, each when the one before runs and the cluster has come to rest: what is measured is
// a lone pod's way, not how two of them share this machine's API server.
func (m *measurer) singles(ctx context.Context, n int) error {
	created := map[string]time.Time{}
	for i := range warmUp + n {
		name := fmt.Sprintf("warm-up-%d", i)
		if i >= warmUp {
			name = fmt.Sprintf("single-%d", i)
		}
		if err := m.rest(ctx); err != nil {
			return err
		}
		if err := m.one(ctx, name, created); err != nil {
			return err
		}
	}
	if err := m.floor(ctx, min(n, floors)); err != nil {
		return err
	}
	if err := m.stepLegs(ctx); err != nil {
		return err
	}
	for _, t := range m.watch.Pods("single-") {
		if t.Requested.IsZero() || t.Offered.IsZero() {
			return fmt.Errorf("pod %q runs, but no CreateFleet request was made for it", t.Pod.Name)
		}
		m.single = append(m.single, max(t.Requested.Sub(created[t.Pod.Name]), 0))
		m.added = append(m.added, max(t.Requested.Sub(created[t.Pod.Name]), 0)+max(t.Bound.Sub(t.Ready), 0))
		m.decision = append(m.decision, max(t.Requested.Sub(t.Offered), 0))
		m.toOffer = append(m.toOffer, max(t.Offered.Sub(created[t.Pod.Name]), 0))
		m.toPlan = append(m.toPlan, t.Planned.Sub(t.Offered))
		m.toSent = append(m.toSent, t.Requested.Sub(t.Planned))
	}
	return nil
}

// warmUp is how many pods are not counted: the API server compiles the CRDs' rules and the processes open their connections
// with the first few.
const warmUp = 5

// one creates a pod that needs a node of its own, notes when the API server had answered, and waits until it runs.
func (m *measurer) one(ctx context.Context, name string, created map[string]time.Time) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec("single", "3", "1Gi")}
	if _, err := m.bed.Client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating pod %q: %w", name, err)
	}
	created[name] = time.Now()
	return m.await(ctx, name, 1)
}

// floors is how often the floor is measured at most.
const floors = 60

// floor writes NodeClaims that ask for nothing, each after a rest: what any claim costs on this control plane. They are
// nobody's: no pool, and a class group that no provider has.
func (m *measurer) floor(ctx context.Context, n int) error {
	kube, err := client.New(m.bed.Cluster.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	for i := range n {
		if err := m.rest(ctx); err != nil {
			return err
		}
		c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("floor-%d", i)}}
		c.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "bench.example", Kind: "Nothing", Name: "none"}
		c.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{}
		start := time.Now()
		if err := kube.Create(ctx, c); err != nil {
			return fmt.Errorf("writing NodeClaim %q: %w", c.Name, err)
		}
		m.write = append(m.write, time.Since(start))
		if err := m.rest(ctx); err != nil {
			return err
		}
		start = time.Now()
		if _, err := m.bed.Client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: c.Name}}, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("writing ConfigMap %q: %w", c.Name, err)
		}
		m.plainWrite = append(m.plainWrite, time.Since(start))
	}
	return nil
}

// stepLegs takes what the scheduler says about the steps of its plans, which were all of single pods.
func (m *measurer) stepLegs(ctx context.Context) error {
	families, err := m.bed.Metrics(ctx, bed.Scheduler)
	if err != nil {
		return err
	}
	m.steps = map[string]time.Duration{}
	for _, name := range []string{"slipway_provisioner_step_duration_seconds", "slipway_launch_step_duration_seconds"} {
		for _, step := range families[name].GetMetric() {
			median := bed.HistogramOf(step.GetHistogram()).Quantile(0.5)
			m.steps[step.GetLabel()[0].GetValue()] = time.Duration(median * float64(time.Second))
		}
	}
	return nil
}

// rest waits until nothing has changed for a while.
func (m *measurer) rest(ctx context.Context) error {
	for {
		changed := m.watch.Changed()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-time.After(quiet):
			return nil
		}
	}
}

// podsPerNode is how many pods of a burst a node of the pool holds.
const podsPerNode = 50

// nodes has single nodes arrive, each for a Deployment that fills it, when everything before has come to rest.
func (m *measurer) nodes(ctx context.Context, n int) error {
	for i := range 1 + n {
		if err := m.rest(ctx); err != nil {
			return err
		}
		name := fmt.Sprintf("node-%d", i)
		times, err := m.burst(ctx, name, podsPerNode)
		if err != nil {
			return err
		}
		if i > 0 { // the first opens connections
			m.bindings(times)
		}
	}
	return nil
}

// bursts scales Deployments at EC2's own pace.
func (m *measurer) bursts(ctx context.Context, small, large int) error {
	if small > 0 {
		times, err := m.burst(ctx, "small", small)
		if err != nil {
			return err
		}
		for _, t := range times {
			m.smallBurst = append(m.smallBurst, max(t.Requested.Sub(t.Created), 0))
		}
	}
	if large == 0 {
		return nil
	}
	calls, bought := m.calls()
	times, err := m.burst(ctx, "large", large)
	if err != nil {
		return err
	}
	m.largeCalls, m.largeBought = m.calls()
	m.largeCalls, m.largeBought = m.largeCalls-calls, m.largeBought-bought
	var created, requested, usable, bound time.Time
	for _, t := range times {
		if created.IsZero() || t.Created.Before(created) {
			created = t.Created
		}
		requested, usable, bound = latest(requested, t.Requested), latest(usable, t.Usable), latest(bound, t.Bound)
	}
	m.largeLast, m.largeBind = requested.Sub(created), bound.Sub(usable)
	return nil
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// burst scales a Deployment from 0 to n and returns the times of its pods when all run.
func (m *measurer) burst(ctx context.Context, name string, n int) ([]bed.Times, error) {
	labels := map[string]string{"app": name}
	_, err := m.bed.Client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(n)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec("dense", "150m", "256Mi")},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating Deployment %q: %w", name, err)
	}
	if err := m.await(ctx, name+"-", n); err != nil {
		return nil, err
	}
	times := m.watch.Pods(name + "-")
	for _, t := range times {
		if t.Requested.IsZero() {
			return nil, fmt.Errorf("pod %q runs, but no CreateFleet request was made for it", t.Pod.Name)
		}
	}
	return times, nil
}

// bindings takes, for each node the burst bought, the time from its readiness to the last of its pods being bound. Pods
// that were created after the node was usable waited for nothing and do not count.
func (m *measurer) bindings(times []bed.Times) {
	type node struct {
		usable, ready, last time.Time
		pods                int
	}
	nodes := map[string]*node{}
	for _, t := range times {
		if t.Usable.IsZero() || t.Created.After(t.Usable) {
			continue
		}
		n := nodes[t.Node]
		if n == nil {
			n = &node{usable: t.Usable, ready: t.Ready}
			nodes[t.Node] = n
		}
		n.last = latest(n.last, t.Bound)
		n.pods++
	}
	for _, n := range nodes {
		m.bindUsable = append(m.bindUsable, max(n.last.Sub(n.usable), 0))
		m.bindReady = append(m.bindReady, max(n.last.Sub(n.ready), 0))
		m.bindPods += n.pods
	}
}

func (m *measurer) calls() (calls, bought int) {
	for _, r := range m.bed.Emulator.Requests() {
		if r.Action == "CreateFleet" && len(r.Instances) > 0 {
			calls++
			bought += len(r.Instances)
		}
	}
	return calls, bought
}

// await waits until n pods with the name prefix run.
func (m *measurer) await(ctx context.Context, prefix string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return m.awaitWithin(ctx, prefix, n)
}

// awaitWithin is await within the context's time.
func (m *measurer) awaitWithin(ctx context.Context, prefix string, n int) error {
	for {
		changed := m.watch.Changed()
		pods, bound, running := m.watch.Counts(prefix)
		if pods >= n && running >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d pods %s*: %d created, %d bound, %d running: %w", n, prefix, pods, bound, running, context.Cause(ctx))
		case <-changed:
		}
	}
}

// collect takes what a bed knows before it goes.
func (m *measurer) collect(ctx context.Context) error {
	_, second := m.watch.Claims()
	m.second += second
	for name, sum := range map[string]*float64{"slipway_provisioner_off_plan_total": &m.offPlan, "slipway_provisioner_forgotten_total": &m.forgotten} {
		n, err := m.bed.Count(ctx, bed.Scheduler, name)
		if err != nil {
			return err
		}
		*sum += n
	}
	h, err := m.bed.Histogram(ctx, bed.Scheduler, "slipway_postfilter_duration_seconds")
	if err != nil {
		return err
	}
	return m.postFilter.Add(h)
}

func figure(name string, value float64, unit string) {
	fmt.Printf("figure %s %.3f %s\n", name, value, unit)
}

func (m *measurer) print() {
	figure("off-plan", m.offPlan, "count")
	figure("second-launches", float64(m.second), "count")
	figure("forgotten", m.forgotten, "count")
	fmt.Printf("%d cycles in PostFilter\n", m.postFilter.Count())
	figure("postfilter-p50", m.postFilter.Quantile(0.5)*1e6, "us")
	figure("postfilter-p99", m.postFilter.Quantile(0.99)*1e6, "us")
}

func (m *measurer) printSingles() {
	quantile := func(of []time.Duration, q float64) float64 { return ms(bed.Quantile(of, q)) }
	fmt.Printf("%d single pods; decision p99 %.2f ms\n", len(m.single), quantile(m.decision, 0.99))
	fmt.Printf("legs, p50: created → filter failure %.2f ms, → planned %.2f ms, → CreateFleet received (NodeClaim written in between) %.2f ms\n",
		quantile(m.toOffer, 0.5), quantile(m.toPlan, 0.5), quantile(m.toSent, 0.5))
	fmt.Print("legs, p50, as the scheduler measured them:")
	for _, step := range []string{"batch", "view", "plan", "verify", "claim", "request", "fleet"} {
		fmt.Printf(" %s %.2f ms", step, ms(m.steps[step]))
	}
	fmt.Println(" (verify is part of plan)")
	for _, of := range []struct {
		what   string
		writes []time.Duration
	}{{"an empty NodeClaim", m.write}, {"a ConfigMap", m.plainWrite}} {
		fmt.Printf("for comparison, a write of %s on this control plane at rest: p50 %.2f ms, p99 %.2f ms\n", of.what, quantile(of.writes, 0.5), quantile(of.writes, 0.99))
	}
	fmt.Printf("added between pending and running, p50: %.1f ms\n", quantile(m.added, 0.5))
	figure("latency-decision-p50", quantile(m.decision, 0.5), "ms")
	figure("decision-p50", quantile(m.decision, 0.5), "ms")
	figure("decision-p99", quantile(m.decision, 0.99), "ms")
	figure("latency-single-p50", quantile(m.single, 0.5), "ms")
	figure("latency-single-p99", quantile(m.single, 0.99), "ms")
	figure("added-p99", quantile(m.added, 0.99), "ms")
}

func (m *measurer) printLoaded() {
	fmt.Printf("%d single pods beside %.0f pods a second that fit: p50 %.2f ms\n", len(m.underLoad), m.loadRate, ms(bed.Quantile(m.underLoad, 0.5)))
	figure("latency-loaded-p99", ms(bed.Quantile(m.underLoad, 0.99)), "ms")
}

func (m *measurer) printIdle() {
	fmt.Printf("%d single pods, each after a minute of idleness: p50 %.2f ms\n", len(m.afterRest), ms(bed.Quantile(m.afterRest, 0.5)))
	figure("latency-idle-p99", ms(bed.Quantile(m.afterRest, 0.99)), "ms")
}

func (m *measurer) printNodes() {
	fmt.Printf("%d nodes, %d pods that waited for them; kubelet Ready → last pod bound (registration and taint removal included): p50 %.1f ms, p99 %.1f ms; usable → last pod bound p50 %.1f ms\n",
		len(m.bindUsable), m.bindPods, ms(bed.Quantile(m.bindReady, 0.5)), ms(bed.Quantile(m.bindReady, 0.99)), ms(bed.Quantile(m.bindUsable, 0.5)))
	figure("bind-after-ready-p99", ms(bed.Quantile(m.bindUsable, 0.99)), "ms")
}

func (m *measurer) printBursts() {
	if len(m.smallBurst) > 0 {
		figure("latency-burst100-p99", ms(bed.Quantile(m.smallBurst, 0.99)), "ms")
	}
	if m.largeBought > 0 {
		fmt.Printf("the large burst: %d CreateFleet calls, %d instances\n", m.largeCalls, m.largeBought)
		figure("latency-burst1000-last", ms(m.largeLast), "ms")
		figure("bind-1000", m.largeBind.Seconds(), "s")
	}
}

func (m *measurer) printReady() {
	fmt.Printf("the burst that was there already: first CreateFleet request after %.1f ms\n", ms(m.burstFirst))
	figure("burst-1000-cluster", m.burstAll.Seconds(), "s")
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
