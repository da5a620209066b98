// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// TemplateStore is EC2's store of launch templates.
type TemplateStore interface {
	// EnsureTemplate makes the template; that it exists already is success.
	EnsureTemplate(ctx context.Context, t ec2.Template) error
	DeleteTemplate(ctx context.Context, name string) error
	// Templates lists the templates of this cluster, Karpenter's included.
	Templates(ctx context.Context) ([]ec2.StoredTemplate, error)
}

// ClusterInfo says what a booting node has to know about the cluster.
type ClusterInfo interface {
	Cluster(ctx context.Context) (ec2.Cluster, error)
}

const (
	// templateUnused is how long a template that no class, pool or launch needs is kept.
	templateUnused = time.Hour
	// templatePeriod is how often templates are looked at without a change of class or pool; templateRetry after a failure.
	templatePeriod = 5 * time.Minute
	templateRetry  = 10 * time.Second
)

// Templates keeps one launch template for each (class, image, pool shape, market), made before it is needed.
type Templates struct {
	kube    client.Reader
	store   TemplateStore
	cluster ClusterInfo
	clock   clock.Clock
	wake    chan struct{}
	pulls   pulls

	mu sync.Mutex
	// names remembers what a (class version, shape, image) is called, specs what is in it.
	names map[nameKey]string
	specs map[string]ec2.Template
	// ready are templates that are known to exist; making are those being made.
	ready  map[string]bool
	making map[string]*making
	// needed is when each template was last asked for.
	needed map[string]time.Time
	listed time.Time
}

// nameKey identifies a template cheaply: the version stands for everything the class says.
type nameKey struct {
	class          types.UID
	version, shape string
	image          string
	variant        variant
}

// making is a template being made, which others wait for.
type making struct {
	done chan struct{}
	err  error
}

// NewTemplates returns an empty set. kube reads EC2NodeClasses and NodePools from a cache.
func NewTemplates(kube client.Reader, store TemplateStore, cluster ClusterInfo, clk clock.Clock) *Templates {
	return &Templates{
		kube: kube, store: store, cluster: cluster, clock: clk, wake: make(chan struct{}, 1),
		names: map[nameKey]string{}, specs: map[string]ec2.Template{}, ready: map[string]bool{}, making: map[string]*making{},
		needed: map[string]time.Time{}, pulls: pulls{pools: map[string]*pull{}},
	}
}

// Run makes the templates of all pools and removes those nobody needs, until ctx ends. [Launcher.Run] wakes it when a class
// or pool changes.
func (t *Templates) Run(ctx context.Context) {
	for {
		wait := templatePeriod
		if err := t.sync(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Info("launch templates are incomplete", "reason", err.Error())
			wait = templateRetry
		}
		timer := t.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-t.wake:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// trigger makes Run look again soon.
func (t *Templates) trigger() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// sync makes every template that is wanted and deletes those that are not. A template that cannot be made does not keep
// the others from being made; the first error is returned.
func (t *Templates) sync(ctx context.Context) error {
	var pools karpv1.NodePoolList
	if err := t.kube.List(ctx, &pools); err != nil {
		return fmt.Errorf("listing NodePools: %w", err)
	}
	var first error
	note := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	note(t.recall(ctx))
	names := map[string]bool{}
	for i := range pools.Items {
		found, err := t.namesOf(ctx, &pools.Items[i])
		note(err)
		for _, n := range found {
			names[n] = true
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name := range names {
		wg.Go(func() {
			if err := t.ensure(ctx, name, false); err != nil {
				mu.Lock()
				note(err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	note(t.collect(ctx))
	return first
}

// namesOf names the templates of a pool; none if its class is not ready.
func (t *Templates) namesOf(ctx context.Context, pool *karpv1.NodePool) ([]string, error) {
	claim := &karpv1.NodeClaim{Spec: karpv1.NodeClaimSpec{NodeClassRef: pool.Spec.Template.Spec.NodeClassRef}}
	if !capacity.Managed(claim.Spec.NodeClassRef) || pool.DeletionTimestamp != nil {
		return nil, nil
	}
	class, err := classOf(ctx, t.kube, claim)
	if err != nil {
		if capacity.KindOf(err) == capacity.NotReady {
			return nil, nil // its status says so; the change that makes it ready wakes us
		}
		return nil, err
	}
	var names []string
	shape := shapeOfPool(pool)
	shape.Images, _ = t.pulls.of(pool.Name)
	for _, ami := range class.Status.AMIs {
		for _, v := range variants(pool) {
			name, err := t.nameOf(ctx, class, shape, ami.ID, v)
			if err != nil {
				return names, err
			}
			names = append(names, name)
		}
	}
	return names, nil
}

// variants are those the pool's launches are most likely to need: on demand, spot or both, on dedicated hardware if the pool
// insists on it. Templates for a reservation or a partition are made when the first launch needs them: there may be many.
func variants(pool *karpv1.NodePool) []variant {
	kind, tenancy := capacity.Exists(karpv1.CapacityTypeLabelKey), capacity.Exists(v1.LabelInstanceTenancy)
	for _, r := range pool.Spec.Template.Spec.Requirements {
		q, err := capacity.NewRequirement(r.Key, r.Operator, r.Values...)
		switch {
		case err != nil: // the pool's condition says so
		case q.Key == karpv1.CapacityTypeLabelKey:
			kind = kind.Intersect(q)
		case q.Key == v1.LabelInstanceTenancy:
			tenancy = tenancy.Intersect(q)
		}
	}
	v := variant{tenancy: tenancyFor(tenancy)}
	var out []variant
	if kind.Has(karpv1.CapacityTypeOnDemand) {
		out = append(out, v)
	}
	if kind.Has(karpv1.CapacityTypeSpot) {
		v.spot = true
		out = append(out, v)
	}
	return out
}

// tenancyFor is the tenancy of an instance that may have the ones allowed: empty, which is the default and much cheaper,
// unless only dedicated will do.
func tenancyFor(allowed capacity.Requirement) string {
	if allowed.Has(tenancyDefault) || !allowed.Has(tenancyDedicated) {
		return ""
	}
	return tenancyDedicated
}

// Values of the tenancy label (EC2's).
const (
	tenancyDefault   = "default"
	tenancyDedicated = "dedicated"
)

// nameOf names the template an instance of the shape boots from.
func (t *Templates) nameOf(ctx context.Context, class *v1.EC2NodeClass, s shape, image string, v variant) (string, error) {
	key := nameKey{class: class.UID, version: class.ResourceVersion, shape: s.key(), image: image, variant: v}
	now := t.clock.Now()
	t.mu.Lock()
	if name, ok := t.names[key]; ok {
		t.needed[name] = now
		t.mu.Unlock()
		return name, nil
	}
	t.mu.Unlock()
	cluster, err := t.cluster.Cluster(ctx)
	if err != nil {
		return "", fmt.Errorf("naming the launch template of EC2NodeClass %q: %w", class.Name, err)
	}
	spec, err := templateOf(cluster, class, s, image, v)
	if err != nil {
		return "", fmt.Errorf("naming the launch template of EC2NodeClass %q: %w", class.Name, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.names, func(k nameKey, _ string) bool { return k.class == key.class && k.version != key.version })
	t.names[key] = spec.Name
	t.specs[spec.Name] = spec
	t.needed[spec.Name] = now
	return spec.Name, nil
}

// exists reports whether the template is known to exist.
func (t *Templates) exists(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ready[name]
}

// ensure makes sure that a template named before exists. Callers that come while it is being made wait for the same call.
// again makes it even if it is believed to exist.
func (t *Templates) ensure(ctx context.Context, name string, again bool) error {
	t.mu.Lock()
	if t.ready[name] && !again {
		t.mu.Unlock()
		return nil
	}
	if m := t.making[name]; m != nil {
		t.mu.Unlock()
		select {
		case <-m.done:
			return m.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m := &making{done: make(chan struct{})}
	t.making[name] = m
	spec, known := t.specs[name]
	t.mu.Unlock()

	if known {
		m.err = t.store.EnsureTemplate(ctx, spec)
	} else {
		m.err = &capacity.Error{Kind: capacity.NotReady, Err: fmt.Errorf("launch template %q was removed because nothing needed it", name)}
	}
	t.mu.Lock()
	if m.err == nil {
		t.ready[name] = true
	}
	delete(t.making, name)
	t.mu.Unlock()
	close(m.done)
	return m.err
}

// collect deletes templates that nobody has asked for in an hour. Those of earlier processes are found by listing, and
// their hour begins when they are first seen.
func (t *Templates) collect(ctx context.Context) error {
	now := t.clock.Now()
	if now.Sub(t.listed) >= templateUnused {
		stored, err := t.store.Templates(ctx)
		if err != nil {
			return fmt.Errorf("listing launch templates: %w", err)
		}
		t.mu.Lock()
		t.listed = now
		for _, s := range stored {
			if _, ok := t.needed[s.Name]; !ok && s.Tags[templateTag] != "" {
				t.needed[s.Name] = now
			}
		}
		t.mu.Unlock()
	}
	for _, name := range t.forget(now) {
		if err := t.store.DeleteTemplate(ctx, name); err != nil && capacity.KindOf(err) != capacity.NotFound {
			t.mu.Lock()
			t.needed[name] = now.Add(-templateUnused)
			t.mu.Unlock()
			return fmt.Errorf("deleting launch template %q: %w", name, err)
		}
	}
	return nil
}

// forget drops what is known about templates nobody needs, before they are deleted: who asks for one in between names and
// makes it anew.
func (t *Templates) forget(now time.Time) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var unused []string
	for name, at := range t.needed {
		if now.Sub(at) >= templateUnused && t.making[name] == nil {
			unused = append(unused, name)
		}
	}
	slices.Sort(unused)
	for _, name := range unused {
		delete(t.needed, name)
		delete(t.specs, name)
		delete(t.ready, name)
		maps.DeleteFunc(t.names, func(_ nameKey, n string) bool { return n == name })
	}
	return unused
}
