// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/view"
)

const (
	// stateEvery and oracleEvery are the least time between two states and two oracles. An oracle costs more, and what it
	// depends on changes less.
	stateEvery  = 200 * time.Millisecond
	oracleEvery = 5 * time.Second
	// pruneEvery is how often what is known of owners without pods is dropped.
	pruneEvery = 10 * time.Minute
	// staleAfter is the age of a catalogue that nothing is judged by any more.
	staleAfter = time.Hour
)

// Watcher follows the cluster and keeps a State of it. Nothing of it is done while a review waits.
type Watcher struct {
	Index *Index

	clock    clock.WithTicker
	log      logr.Logger
	metrics  *Metrics
	core     informers.SharedInformerFactory
	catalogs informers.SharedInformerFactory // ConfigMaps of our own namespace
	objects  ctrlcache.Cache
	mapper   meta.RESTMapper
	source   view.Source
	views    *view.Builder
	made     *published

	state            atomic.Pointer[State]
	oracle           *Oracle
	dirty, dirtyView chan struct{}
	synced           []toolscache.InformerSynced
	// recommenders lists VerticalPodAutoscalers, nil in clusters without them.
	recommenders func(context.Context) []*unstructured.Unstructured
}

// WatchOptions are what a watcher needs.
type WatchOptions struct {
	// Namespace is Slipway's own, where the scheduler publishes catalogues.
	Namespace string
	Scheme    *runtime.Scheme
	Clock     clock.WithTicker
	Log       logr.Logger
	Metrics   *Metrics
}

// NewWatcher prepares the informers; Run starts them.
func NewWatcher(config *rest.Config, o WatchOptions) (*Watcher, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	plain := rest.CopyConfig(config)
	plain.ContentType, plain.AcceptContentTypes = "", "" // custom resources speak JSON only
	web, err := rest.HTTPClientFor(plain)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(plain, web)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	objects, err := ctrlcache.New(plain, ctrlcache.Options{Scheme: o.Scheme, Mapper: mapper, HTTPClient: web, DefaultTransform: ctrlcache.TransformStripManagedFields()})
	if err != nil {
		return nil, fmt.Errorf("making the cache: %w", err)
	}
	w := &Watcher{
		Index: NewIndex(), clock: o.Clock, log: o.Log, metrics: o.Metrics, objects: objects, mapper: mapper,
		core:     informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithTransform(strip)),
		catalogs: informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(o.Namespace), informers.WithTweakListOptions(onlyCatalogs)),
		dirty:    make(chan struct{}, 1), dirtyView: make(chan struct{}, 1),
		made: newPublished(o.Clock, o.Log),
	}
	core, apps, storage := w.core.Core().V1(), w.core.Apps().V1(), w.core.Storage().V1()
	w.source = view.Source{
		// Pods pass; whether a pod can ever run is asked of an empty cluster.
		Pods:  corelisters.NewPodLister(toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})),
		Nodes: core.Nodes().Lister(), Namespaces: core.Namespaces().Lister(), LimitRanges: core.LimitRanges().Lister(),
		PersistentVolumes:      corelisters.NewPersistentVolumeLister(toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, nil)),
		PersistentVolumeClaims: corelisters.NewPersistentVolumeClaimLister(toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})),
		DaemonSets:             apps.DaemonSets().Lister(), StorageClasses: storage.StorageClasses().Lister(),
		Karpenter: objects, Catalog: func(c *v1.EC2NodeClass) *capacity.Catalog { return w.made.catalog(c.Name) },
		Available: func(c *capacity.Catalog) capacity.Set { return capacity.FullSet(len(c.Offerings)) },
	}
	w.views = view.New(w.source)
	return w, w.watch()
}

// State is what is known, nil before everything has been seen once.
func (w *Watcher) State() *State { return w.state.Load() }

// Synced reports whether there is a state.
func (w *Watcher) Synced() bool { return w.state.Load() != nil }

// Settled waits until there is a state that knows what is feasible, if that can be known; false if ctx ends before.
func (w *Watcher) Settled(ctx context.Context) bool {
	for {
		if s := w.State(); s != nil {
			if _, published := w.made.age(); !published || s.in.Oracle != nil {
				return true
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-w.clock.After(stateEvery):
		}
	}
}

// watch adds the handlers.
func (w *Watcher) watch() error {
	change := func(view bool) toolscache.ResourceEventHandler { return w.marking(view) }
	core, apps := w.core.Core().V1(), w.core.Apps().V1()
	for _, in := range []struct {
		informer toolscache.SharedIndexInformer
		handler  toolscache.ResourceEventHandler
	}{
		{core.Pods().Informer(), w.Index.Pods(w.clock.Now)},
		{apps.ReplicaSets().Informer(), w.Index.Controllers()},
		{apps.StatefulSets().Informer(), w.Index.Controllers()},
		{w.core.Batch().V1().Jobs().Informer(), w.Index.Controllers()},
		{apps.ReplicaSets().Informer(), change(false)},
		{apps.StatefulSets().Informer(), change(false)},
		{apps.Deployments().Informer(), change(false)},
		{apps.DaemonSets().Informer(), change(true)},
		{core.Nodes().Informer(), w.nodes()},
		{core.Namespaces().Informer(), change(false)},
		{core.LimitRanges().Informer(), change(false)},
		{w.core.Storage().V1().StorageClasses().Informer(), change(false)},
		{w.core.Policy().V1().PodDisruptionBudgets().Informer(), change(false)},
		{w.core.Autoscaling().V2().HorizontalPodAutoscalers().Informer(), change(false)},
		{w.catalogs.Core().V1().ConfigMaps().Informer(), w.published()},
	} {
		r, err := in.informer.AddEventHandler(in.handler)
		if err != nil {
			return fmt.Errorf("watching the cluster: %w", err)
		}
		w.synced = append(w.synced, r.HasSynced)
	}
	return nil
}

func (w *Watcher) mark(view bool) {
	to := w.dirty
	if view {
		to = w.dirtyView
	}
	select {
	case to <- struct{}{}:
	default:
	}
}

func (w *Watcher) marking(view bool) toolscache.ResourceEventHandlerFuncs {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.mark(view) },
		UpdateFunc: func(any, any) { w.mark(view) },
		DeleteFunc: func(any) { w.mark(view) },
	}
}

// nodes marks only changes that decide what fits, not every heartbeat.
func (w *Watcher) nodes() toolscache.ResourceEventHandler {
	h := w.marking(true)
	h.UpdateFunc = func(a, b any) {
		before, okA := a.(*corev1.Node)
		now, okB := b.(*corev1.Node)
		if okA && okB && equality.Semantic.DeepEqual(before.Labels, now.Labels) && equality.Semantic.DeepEqual(before.Spec, now.Spec) &&
			equality.Semantic.DeepEqual(before.Status.Allocatable, now.Status.Allocatable) {
			return
		}
		w.mark(true)
	}
	return h
}

func (w *Watcher) published() toolscache.ResourceEventHandler {
	put := func(o any) {
		if m, ok := o.(*corev1.ConfigMap); ok && w.made.put(m) {
			w.mark(true)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: put, UpdateFunc: func(_, o any) { put(o) },
		DeleteFunc: func(o any) {
			if d, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = d.Obj
			}
			if m, ok := o.(*corev1.ConfigMap); ok {
				w.made.drop(m)
				w.mark(true)
			}
		},
	}
}

// Run follows the cluster until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	for _, o := range []client.Object{&karpv1.NodePool{}, &karpv1.NodeClaim{}, &v1.EC2NodeClass{}, &v1alpha1.WorkloadPolicy{}} {
		informer, err := w.objects.GetInformer(ctx, o, ctrlcache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T: %w; are the CustomResourceDefinitions installed?", o, err)
		}
		_, policy := o.(*v1alpha1.WorkloadPolicy)
		r, err := informer.AddEventHandler(w.marking(!policy))
		if err != nil {
			return fmt.Errorf("watching %T: %w", o, err)
		}
		w.synced = append(w.synced, r.HasSynced)
	}
	failed := make(chan error, 1)
	go func() { failed <- w.objects.Start(ctx) }()
	if err := w.watchAutoscalers(ctx); err != nil {
		return err
	}
	w.core.Start(ctx.Done())
	w.catalogs.Start(ctx.Done())
	if !toolscache.WaitForCacheSync(ctx.Done(), w.synced...) {
		return ctx.Err()
	}
	w.mark(true)
	go w.loop(ctx)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// watchAutoscalers follows VerticalPodAutoscalers if the cluster has them when this process starts.
func (w *Watcher) watchAutoscalers(ctx context.Context) error {
	_, err := w.mapper.RESTMapping(AutoscalerKind().GroupKind(), AutoscalerKind().Version)
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for VerticalPodAutoscalers: %w", err)
	}
	kind := &unstructured.Unstructured{}
	kind.SetGroupVersionKind(AutoscalerKind())
	informer, err := w.objects.GetInformer(ctx, kind, ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching VerticalPodAutoscalers: %w", err)
	}
	r, err := informer.AddEventHandler(w.marking(false))
	if err != nil {
		return fmt.Errorf("watching VerticalPodAutoscalers: %w", err)
	}
	w.synced = append(w.synced, r.HasSynced)
	w.recommenders = func(ctx context.Context) []*unstructured.Unstructured {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(AutoscalerKind())
		if err := w.objects.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			w.log.Error(err, "listing VerticalPodAutoscalers")
			return nil
		}
		return pointers(list.Items)
	}
	return nil
}

// loop makes states and oracles as things change, each at most so often.
func (w *Watcher) loop(ctx context.Context) {
	prune := w.clock.NewTicker(pruneEvery)
	defer prune.Stop()
	wanted, next := false, w.clock.Now()
	for {
		var due <-chan time.Time
		if wanted {
			due = w.clock.After(max(0, next.Sub(w.clock.Now())))
		}
		select {
		case <-ctx.Done():
			return
		case <-prune.C():
			w.Index.Prune(w.clock.Now())
			wanted = true // catalogues grow old without an event
			continue
		case <-w.dirtyView:
			wanted = true
			continue
		case <-due:
			w.look(ctx)
			wanted, next = false, w.clock.Now().Add(oracleEvery)
		case <-w.dirty:
		}
		w.renew(ctx)
		select {
		case <-ctx.Done():
			return
		case <-w.clock.After(stateEvery):
		}
	}
}

// look makes an oracle of what the cluster and the catalogues are now. Without a fresh catalogue there is none.
func (w *Watcher) look(ctx context.Context) {
	age, known := w.made.age()
	w.metrics.CatalogAge.Set(age.Seconds())
	if !known || age > staleAfter {
		w.oracle = nil
		return
	}
	v, err := w.views.Build(ctx, view.Pending{})
	if err != nil {
		w.log.Error(err, "looking at the cluster; what is feasible is not said")
		w.oracle = nil
		return
	}
	o := NewOracle(v, func() Converter { return view.New(w.source).Pod }, w.clock, w.oracle)
	w.oracle = o
}

// renew makes a state.
func (w *Watcher) renew(ctx context.Context) {
	in, err := w.inputs(ctx)
	if err != nil {
		w.log.Error(err, "reading the caches; what is known stays as it was")
		return
	}
	w.state.Store(NewState(in))
}

// everything is the selector of all objects of a lister.
func everything() labels.Selector { return labels.Everything() }
