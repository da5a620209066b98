// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync/atomic"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/demand"
	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/scheduler"
	"github.com/slipway-sh/slipway/scheduler/simulate"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

// objects are the cluster: nodes of 32 cores in three zones, running pods spread over them evenly, and pending ones that fit.
func (n size) objects() []kruntime.Object {
	var out []kruntime.Object
	amount := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	room := amount("32", "128Gi")
	room[corev1.ResourcePods] = resource.MustParse("110")
	for i := range n.nodes {
		name := fmt.Sprintf("node-%d", i)
		out = append(out, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelTopologyZone: fmt.Sprintf("zone-%c", 'a'+i%3), corev1.LabelInstanceTypeStable: "m5.8xlarge",
			}},
			Status: corev1.NodeStatus{Capacity: room, Allocatable: room, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
	}
	requests := amount("250m", "512Mi")
	for i := range n.running + n.pending {
		app := fmt.Sprintf("app-%d", i%200)
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("pod-%d", i), Namespace: "default", UID: types.UID(fmt.Sprintf("pod-%d", i)), Labels: map[string]string{"app": app},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app, UID: types.UID(app), Controller: new(true)}},
			},
			Spec: corev1.PodSpec{
				SchedulerName: corev1.DefaultSchedulerName,
				Containers:    []corev1.Container{{Name: "c", Image: "registry.example/c:1", Resources: corev1.ResourceRequirements{Requests: requests}}},
			},
		}
		if i < n.running {
			p.Spec.NodeName, p.Status.Phase = fmt.Sprintf("node-%d", i%n.nodes), corev1.PodRunning
		}
		out = append(out, p)
	}
	return out
}

// result is one run: how long until all pods were bound, the processor time of that, and the heap then, in MiB.
type result struct {
	took, cpu time.Duration
	heap      float64
}

// measure runs a scheduler over the objects until the pending pods are bound.
func (n size) measure(ctx context.Context, objects []kruntime.Object, slipway bool) (result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	runtime.GC()
	client := fake.NewSimpleClientset(objects...) // the one with field management takes a minute for these objects
	var bound atomic.Int64
	done := make(chan struct{})
	client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, kruntime.Object, error) {
		if a.GetSubresource() == "binding" && bound.Add(1) == int64(n.pending) {
			close(done)
		}
		return true, nil, nil // the pod stays assumed, which to the scheduler is as good as bound
	})
	factory := kubescheduler.NewInformerFactory(client, 0, nil)
	var with *market
	if slipway {
		with = &market{karpenter: source.New().Client}
	}
	sched, err := build(ctx, client, factory, with)
	if err != nil {
		return result{}, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := sched.WaitForHandlersSync(ctx); err != nil {
		return result{}, err
	}
	runtime.GC()
	profiled, err := n.profile(slipway)
	if err != nil {
		return result{}, err
	}
	start, before, ended := time.Now(), spent(), make(chan struct{})
	go func() { defer close(ended); sched.Run(ctx) }()
	select {
	case <-done:
	case <-ctx.Done():
		return result{}, context.Cause(ctx)
	case <-time.After(5 * time.Minute):
		return result{}, fmt.Errorf("%d of %d pods bound after 5 minutes", bound.Load(), n.pending)
	}
	took, cpu := time.Since(start), spent()-before
	profiled()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	cancel()
	<-ended
	factory.Shutdown()
	return result{took, cpu, float64(m.HeapAlloc) / (1 << 20)}, nil
}

// profile begins a processor profile of a turn, if they are wanted, and returns what ends it.
func (n size) profile(slipway bool) (end func(), err error) {
	if n.profiles == "" {
		return func() {}, nil
	}
	name := "without.pprof"
	if slipway {
		name = "with.pprof"
	}
	f, err := os.Create(filepath.Join(n.profiles, name))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		if err := f.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "bench-scheduler: writing a profile: %v\n", err)
		}
	}, nil
}

// market is what a scheduler with Slipway can buy, and who is told to.
type market struct {
	karpenter client.Client
	catalog   *capacity.Catalog // nil for nothing
	launcher  provisioner.Launcher
	prov      *provisioner.Provisioner // who buys, set by build
	metrics   *scheduler.Metrics       // of the plugin, set by build
}

// build makes a stock scheduler, with Slipway in it if there is a market.
func build(ctx context.Context, client *fake.Clientset, factory informers.SharedInformerFactory, buys *market) (*kubescheduler.Scheduler, error) {
	cfg, err := latest.Default()
	if err != nil {
		return nil, err
	}
	p := cfg.Profiles[0]
	recorders := profile.NewRecorderFactory(events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})) // not started: events go nowhere
	if buys == nil {
		return kubescheduler.New(ctx, client, factory, nil, recorders, kubescheduler.WithProfiles(p))
	}
	p.Plugins.MultiPoint.Enabled = append(p.Plugins.MultiPoint.Enabled, schedulerapi.Plugin{Name: scheduler.Name})
	gate := scheduler.NewGate(clock.RealClock{}, scheduler.DefaultGateDeadline)
	metrics, err := scheduler.NewMetrics(prometheus.NewRegistry(), gate)
	if err != nil {
		return nil, err
	}
	prov := provisioner.New(provisioner.Options{
		Kube: buys.karpenter, Pods: factory.Core().V1().Pods().Lister(), Views: view.New(sources(factory, buys)), Gate: gate, Clock: clock.RealClock{},
		Launcher: buys.launcher, Events: &events.FakeRecorder{}, Logger: logr.Discard(), Batch: demand.Options{MaxAge: scheduler.DefaultBatchMax, MaxSize: 5000, Look: scheduler.DefaultEarlyLaunch},
	})
	core := scheduler.Core{Sink: prov, Reservations: prov, Gate: gate, Metrics: metrics}
	if err := factory.Core().V1().Pods().Informer().AddIndexers(demand.Indexers()); err != nil {
		return nil, err
	}
	sched, err := kubescheduler.New(ctx, client, factory, nil, recorders, kubescheduler.WithProfiles(p),
		kubescheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{scheduler.Name: scheduler.NewFactory(core)}))
	if err != nil {
		return nil, err
	}
	if err := scheduler.Hook(sched, core, prov); err != nil {
		return nil, err
	}
	judge, err := simulate.New(ctx, simulate.Options{Profile: p, Live: scheduler.Unreserved(sched.Profiles[p.SchedulerName]), Registry: frameworkruntime.Registry{}})
	if err != nil {
		return nil, err
	}
	prov.Judge, buys.prov, buys.metrics = judge, prov, metrics
	go func() { _ = prov.Run(ctx) }() // ends with ctx
	return sched, prov.Watch(ctx, provisioner.Informers{
		Pods: factory.Core().V1().Pods().Informer(), Nodes: factory.Core().V1().Nodes().Informer(), Claims: empty{}, Pools: empty{}, NodeClass: empty{},
		Namespaces: factory.Core().V1().Namespaces().Informer(), CSINodes: factory.Storage().V1().CSINodes().Informer(), NodeLister: factory.Core().V1().Nodes().Lister(),
	})
}

func sources(f informers.SharedInformerFactory, buys *market) view.Source {
	core, storage := f.Core().V1(), f.Storage().V1()
	return view.Source{
		Pods: core.Pods().Lister(), Nodes: core.Nodes().Lister(), Namespaces: core.Namespaces().Lister(), LimitRanges: core.LimitRanges().Lister(),
		PersistentVolumes: core.PersistentVolumes().Lister(), PersistentVolumeClaims: core.PersistentVolumeClaims().Lister(),
		DaemonSets: f.Apps().V1().DaemonSets().Lister(), StorageClasses: storage.StorageClasses().Lister(), CSINodes: storage.CSINodes().Lister(),
		Karpenter: buys.karpenter,
		Catalog:   func(*v1.EC2NodeClass) *capacity.Catalog { return buys.catalog },
		Available: func(c *capacity.Catalog) capacity.Set { return capacity.FullSet(len(c.Offerings)) },
	}
}

// empty is an informer of a kind of which there is nothing.
type empty struct{}

// AddEventHandler implements view.Informer.
func (empty) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return empty{}, nil
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (empty) HasSynced() bool { return true }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (empty) HasSyncedChecker() cache.DoneChecker { return empty{} }

// Name implements cache.DoneChecker.
func (empty) Name() string { return "empty" }

// Done implements cache.DoneChecker.
func (empty) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}
