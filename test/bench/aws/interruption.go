// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/claim"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/provisioner/interruption"
	"github.com/slipway-sh/slipway/provisioner/launch"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/cluster"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// interruptions is how fast replacements are bought. The API server is a real one; the consumer of the queue and the
// launcher are the product's, in this process; the drains, which come after, are left out.
type interruptions struct {
	requested []time.Duration // notice visible → CreateFleet received
	calls     int
	receives  int
	bought    int
	took      time.Duration // first notice → last
	// Where the time goes: notice visible → received → its claims' creation begins → the last is created → CreateFleet received.
	heard, until, creation, launch []time.Duration
	profile                        string // file for a CPU profile, none if empty
}

// shapes is how many kinds of nodes the notices are about.
const shapes = 2

func (s *interruptions) measure(ctx context.Context, n int) error {
	ctx, stop := context.WithCancel(logr.NewContext(ctx, logr.Discard()))
	defer stop()
	c, err := cluster.New(ctx, cluster.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = c.Stop() }()
	if err := c.ApplyCRDs(ctx); err != nil {
		return err
	}
	w, err := newWorld(ctx, ec2emu.Options{Throttle: true})
	if err != nil {
		return err
	}
	defer w.emu.Close()
	h, err := newHost(ctx, c.Config(), w)
	if err != nil {
		return err
	}
	old, err := h.nodes(ctx, n)
	if err != nil {
		return err
	}
	if err := h.start(ctx); err != nil {
		return err
	}
	// The buckets that launching the nodes has drawn on fill up again.
	time.Sleep(10 * time.Second)

	if s.profile != "" {
		f, err := os.Create(s.profile)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	before := len(w.emu.Requests())
	visible := make(map[string]time.Time, n) // by claim
	began := time.Now()
	tick := time.NewTicker(max(time.Second/time.Duration(n), 1))
	for _, o := range old {
		h.instances[o.Claim.Name] = o.Instance.ID
		visible[o.Claim.Name] = time.Now()
		if err := w.emu.InterruptSpot(o.Instance.ID); err != nil {
			return err
		}
		<-tick.C
	}
	tick.Stop()
	s.took = time.Since(began)
	return s.collect(ctx, h, w, before, visible)
}

// collect waits until every notice has been dealt with and every replacement has its request.
func (s *interruptions) collect(ctx context.Context, h *host, w *world, before int, visible map[string]time.Time) error {
	var claims karpv1.NodeClaimList
	sent := map[string]time.Time{}
	err := bed.Eventually(ctx, "replacements", func(ctx context.Context) (bool, error) {
		if ready, hidden := w.emu.QueueDepth(); ready+hidden > 0 {
			return false, nil
		}
		for _, q := range w.since(before) {
			if id := launchOf(q); q.Action == "CreateFleet" && sent[id].IsZero() {
				sent[id] = q.At
			}
		}
		if err := h.live.List(ctx, &claims); err != nil {
			return false, err
		}
		return !slices.ContainsFunc(claims.Items, func(c karpv1.NodeClaim) bool { return sent[launchID(&c)].IsZero() && visible[c.Name].IsZero() }), nil
	})
	if err != nil {
		return err
	}
	for _, q := range w.since(before) {
		switch q.Action {
		case "CreateFleet":
			s.calls++
		case "ReceiveMessage":
			s.receives++
		}
	}
	last := map[string]time.Duration{} // by interrupted claim: its pods may go to several replacements
	h.writes.mu.Lock()
	defer h.writes.mu.Unlock()
	for i := range claims.Items {
		c := &claims.Items[i]
		if c.Annotations[capacity.ReplacesAnnotation] == "" {
			continue
		}
		s.bought++
		for old := range strings.SplitSeq(c.Annotations[capacity.ReplacesAnnotation], ",") {
			last[old] = max(last[old], sent[launchID(c)].Sub(visible[old]))
			write := h.writes.of[c.Name]
			heard := h.writes.heard[h.instances[old]]
			s.heard = append(s.heard, heard.Sub(visible[old]))
			s.until = append(s.until, write[0].Sub(heard))
			s.creation = append(s.creation, write[1].Sub(write[0]))
			s.launch = append(s.launch, sent[launchID(c)].Sub(write[1]))
		}
	}
	for _, d := range last {
		s.requested = append(s.requested, d)
	}
	if len(s.requested) != len(visible) {
		return fmt.Errorf("%d replacements for %d notices", len(s.requested), len(visible))
	}
	return nil
}

func (s *interruptions) print() {
	fmt.Printf("interruptions: %d notices in %.2f s and %d answers of the queue, %d replacements requested with %d CreateFleet calls, p50 %.1f ms, p90 %.1f ms\n", len(s.requested), s.took.Seconds(), s.receives, s.bought, s.calls,
		ms(bed.Quantile(s.requested, 0.5)), ms(bed.Quantile(s.requested, 0.9)))
	for _, part := range []struct {
		name string
		took []time.Duration
	}{{"notice to receipt", s.heard}, {"receipt to claim", s.until}, {"claim written", s.creation}, {"claim to request", s.launch}} {
		fmt.Printf("interruptions: %s: p50 %.1f ms, p90 %.1f ms, p99 %.1f ms\n", part.name,
			ms(bed.Quantile(part.took, 0.5)), ms(bed.Quantile(part.took, 0.9)), ms(bed.Quantile(part.took, 0.99)))
	}
}

// launchID is the launch a claim is part of.
func launchID(c *karpv1.NodeClaim) string {
	return cmp.Or(c.Annotations[capacity.LaunchGroupAnnotation], string(c.UID))
}

// host is what of the product runs against the API server.
type host struct {
	w     *world
	live  client.Client // reads from the API server
	kube  client.Client // reads from the cache
	cache cache.Cache
	// writes are the creations of claims.
	writes *writes
	// instances are those of the nodes, by claim.
	instances map[string]string
}

// writes notes when objects' creations began and ended.
type writes struct {
	client.Client
	mu    sync.Mutex
	of    map[string][2]time.Time
	heard map[string]time.Time // when the claim of an instance was first looked for
}

// List implements client.Reader.
func (w *writes) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	for _, o := range opts {
		if fields, ok := o.(client.MatchingFields); ok {
			if id := fields["status.instanceID"]; id != "" {
				w.mu.Lock()
				if w.heard[id].IsZero() {
					w.heard[id] = time.Now()
				}
				w.mu.Unlock()
			}
		}
	}
	return w.Client.List(ctx, list, opts...)
}

// Create implements client.Writer.
func (w *writes) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	began := time.Now()
	err := w.Client.Create(ctx, o, opts...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of[o.GetName()] = [2]time.Time{began, time.Now()}
	return err
}

func newHost(ctx context.Context, config *rest.Config, w *world) (*host, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	h := &host{w: w, instances: map[string]string{}}
	var err error
	if h.live, err = client.New(config, client.Options{Scheme: scheme.Scheme}); err != nil {
		return nil, err
	}
	if h.cache, err = cache.New(config, cache.Options{Scheme: scheme.Scheme, DefaultTransform: cache.TransformStripManagedFields()}); err != nil {
		return nil, err
	}
	if err := claim.AddIndexes(ctx, h.cache); err != nil {
		return nil, err
	}
	if err := interruption.AddIndexes(ctx, h.cache); err != nil {
		return nil, err
	}
	if h.kube, err = client.New(config, client.Options{Scheme: scheme.Scheme, Cache: &client.CacheOptions{Reader: h.cache}}); err != nil {
		return nil, err
	}
	h.writes = &writes{Client: h.kube, of: map[string][2]time.Time{}, heard: map[string]time.Time{}}
	return h, h.supply(ctx)
}

// supply writes the class, ready as it is, and the pool.
func (h *host) supply(ctx context.Context) error {
	class := h.w.class.DeepCopy()
	status := class.Status
	class.UID, class.ResourceVersion = "", ""
	if err := h.live.Create(ctx, class); err != nil {
		return err
	}
	class.Status = status
	for i := range class.Status.Conditions {
		class.Status.Conditions[i].ObservedGeneration = class.Generation
	}
	if err := h.live.Status().Update(ctx, class); err != nil {
		return err
	}
	h.w.class = class
	return h.live.Create(ctx, builder.NodePool("bench").Require(builder.In(karpv1.CapacityTypeLabelKey, "spot")).Obj())
}

// nodes launches n spot instances and writes claims, Nodes and a pod each, as if they had joined.
func (h *host) nodes(ctx context.Context, n int) ([]launch.Outcome, error) {
	r := h.w.launcher(builder.NodePool("bench").Require(builder.In(karpv1.CapacityTypeLabelKey, "spot")).Obj())
	var claims []*karpv1.NodeClaim
	for i := range n {
		c, err := r.claim(ctx, fmt.Sprintf("old-%d", i), "bench", ask{group: fmt.Sprintf("old-%d", i%shapes), cpu: 1 + i%shapes, reqs: requirements{
			in(karpv1.CapacityTypeLabelKey, "spot"),
		}})
		if err != nil {
			return nil, err
		}
		claims = append(claims, c)
	}
	r.Launch(ctx, claims)
	out, err := r.await(ctx, n)
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 32)
	errs := make([]error, n)
	for i, o := range out {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if o.Err != nil {
				errs[i] = o.Err
				return
			}
			errs[i] = h.join(ctx, o)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// join writes one claim with its Node and a pod on it.
func (h *host) join(ctx context.Context, o launch.Outcome) error {
	c := o.Claim.DeepCopy()
	status := c.Status
	c.ResourceVersion, c.UID, c.Finalizers, c.CreationTimestamp = "", "", nil, metav1.Time{}
	delete(c.Annotations, launch.LaunchGroupAnnotation)
	if err := h.live.Create(ctx, c); err != nil {
		return err
	}
	c.Status = status
	c.Status.NodeName = o.NodeName
	if err := h.live.Status().Update(ctx, c); err != nil {
		return err
	}
	node := builder.Node(o.NodeName).ProviderID(c.Status.ProviderID).CPU("2").Memory("8Gi").Obj()
	node.UID = ""
	if err := h.live.Create(ctx, node); err != nil {
		return err
	}
	cpu := c.Spec.Resources.Requests[corev1.ResourceCPU]
	pod := builder.Pod("pod-" + c.Name).On(o.NodeName).CPU(cpu.String()).Obj()
	pod.UID = ""
	return h.live.Create(ctx, pod)
}

// start runs the cache, the launcher and the consumer of the queue.
func (h *host) start(ctx context.Context) error {
	for _, o := range []client.Object{&karpv1.NodeClaim{}, &karpv1.NodePool{}, &v1.EC2NodeClass{}, &corev1.Node{}, &corev1.Pod{}} {
		if _, err := h.cache.GetInformer(ctx, o, cache.BlockUntilSynced(false)); err != nil {
			return err
		}
	}
	go func() { _ = h.cache.Start(ctx) }()
	if !h.cache.WaitForCacheSync(ctx) {
		return ctx.Err()
	}
	h.w.catalogs.For(h.w.class)
	templates := launch.NewTemplates(h.kube, h.w.cloud, h.w.cloud, clock.RealClock{})
	launcher := launch.New(launch.Options{
		Kube: h.kube, Cloud: h.w.cloud, Catalogs: h.w.catalogs, Shortages: ec2.NewShortages(clock.RealClock{}), Templates: templates,
		Subnets: launch.NewSubnets(h.w.cloud, h.kube, clock.RealClock{}), ClusterName: "demo", Region: h.w.emu.Region(),
	})
	go templates.Run(ctx)
	go func() { _ = launcher.Run(ctx, h.cache) }()
	reactor := interruption.New(interruption.Options{Kube: h.writes, Events: silent{}, Catalogs: h.w.catalogs})
	consumer := interruption.NewConsumer(reactor, func(ctx context.Context) (interruption.Queue, error) {
		return h.w.cloud.Queue(ctx, h.w.emu.QueueName())
	})
	go func() { _ = consumer.Start(ctx) }()
	return nil
}

// silent records no events: they are written in the background and rate limited in the product.
type silent struct{}

// Eventf implements interruption.Events.
func (silent) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {} //nolint:revive // the interface is client-go's
