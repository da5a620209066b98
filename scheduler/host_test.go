// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/clock"
)

// fakeSink parks every pod, or refuses all, and counts.
type fakeSink struct {
	refuse bool
	node   string

	mu     sync.Mutex
	offers map[string]int
}

func (s *fakeSink) Offer(pod *corev1.Pod, _ func(string) bool) (bool, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.offers == nil {
		s.offers = map[string]int{}
	}
	s.offers[pod.Name]++
	return !s.refuse, s.node
}

func (s *fakeSink) count(pod string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offers[pod]
}

// fakeListener notes how many offers there were when the queue drained.
type fakeListener struct {
	mu      sync.Mutex
	leading int
	drained []int
	queued  []int // what Queued was called with
	offers  func() int
}

func (l *fakeListener) Leading() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leading++
}

func (l *fakeListener) Queued(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queued = append(l.queued, n)
}

func (l *fakeListener) Drained() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drained = append(l.drained, l.offers())
}

// host is a real scheduler on a fake API server.
type host struct {
	t         *testing.T
	client    *fake.Clientset
	sched     *scheduler.Scheduler
	gate      *Gate
	sink      *fakeSink
	listener  *fakeListener
	nominator *Nominator
}

// startHost runs the scheduler over the objects until the test ends.
func startHost(t *testing.T, sink *fakeSink, objects ...runtime.Object) *host {
	t.Helper()
	return startHostWith(t, sink, nil, objects...)
}

// startHostWith is startHost with room kept on nodes.
func startHostWith(t *testing.T, sink *fakeSink, room Reservations, objects ...runtime.Object) *host {
	t.Helper()
	return startHostOf(t, Core{Sink: sink, Reservations: room}, objects...)
}

// startHostOf is startHost with all that the plugin talks to; gate and metrics are the host's.
func startHostOf(t *testing.T, core Core, objects ...runtime.Object) *host {
	t.Helper()
	sink := core.Sink.(*fakeSink)
	ctx, cancel := context.WithCancel(t.Context())
	h := &host{t: t, client: fake.NewClientset(objects...), sink: sink, gate: NewGate(clock.RealClock{}, time.Minute)}
	h.client.PrependReactor("create", "pods", h.bindReactor)
	metrics, err := NewMetrics(prometheus.NewRegistry(), h.gate)
	if err != nil {
		t.Fatal(err)
	}
	core.Gate, core.Metrics = h.gate, metrics
	factory := scheduler.NewInformerFactory(h.client, 0, nil)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: h.client.EventsV1()})
	h.sched, err = scheduler.New(ctx, h.client, factory, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithProfiles(slipwayProfile(t)),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{Name: NewFactory(core)}),
		scheduler.WithPodInitialBackoffSeconds(1), scheduler.WithPodMaxBackoffSeconds(2))
	if err != nil {
		t.Fatal(err)
	}
	h.listener = &fakeListener{offers: func() int { sink.mu.Lock(); defer sink.mu.Unlock(); return len(sink.offers) }}
	if err := Hook(h.sched, core, h.listener); err != nil {
		t.Fatal(err)
	}
	if h.nominator, err = NewNominator(h.sched); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := h.sched.WaitForHandlersSync(ctx); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); h.sched.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done; broadcaster.Shutdown(); factory.Shutdown() })
	return h
}

// slipwayProfile is the stock profile with the plugin where users put it.
func slipwayProfile(t *testing.T) schedulerapi.KubeSchedulerProfile {
	t.Helper()
	cfg, err := latest.Default()
	if err != nil {
		t.Fatal(err)
	}
	p := cfg.Profiles[0]
	p.Plugins.MultiPoint.Enabled = append(p.Plugins.MultiPoint.Enabled, schedulerapi.Plugin{Name: Name})
	p.PluginConfig = append(p.PluginConfig, schedulerapi.PluginConfig{Name: Name, Args: &runtime.Unknown{Raw: []byte(`{"gateDeadline":"77s"}`)}})
	return p
}

// bindReactor does what the API server does with a binding.
func (h *host) bindReactor(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "binding" {
		return false, nil, nil
	}
	binding := action.(clienttesting.CreateAction).GetObject().(*corev1.Binding)
	gvr := corev1.SchemeGroupVersion.WithResource("pods")
	obj, err := h.client.Tracker().Get(gvr, action.GetNamespace(), binding.Name)
	if err != nil {
		return true, nil, err
	}
	pod := obj.(*corev1.Pod).DeepCopy()
	pod.Spec.NodeName = binding.Target.Name
	pod.Status.NominatedNodeName = ""
	return true, binding, h.client.Tracker().Update(gvr, pod, action.GetNamespace())
}

func (h *host) eventually(what string, ok func() bool) {
	h.t.Helper()
	err := wait.PollUntilContextTimeout(h.t.Context(), time.Millisecond, 20*time.Second, true,
		func(context.Context) (bool, error) { return ok(), nil })
	if err != nil {
		h.t.Fatalf("waiting until %s: %v", what, err)
	}
}

func (h *host) create(pod *corev1.Pod) {
	h.t.Helper()
	if _, err := h.client.CoreV1().Pods(pod.Namespace).Create(h.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) addNode(node *corev1.Node) {
	h.t.Helper()
	want := h.sched.Cache.NodeCount() + 1
	if _, err := h.client.CoreV1().Nodes().Create(h.t.Context(), node, metav1.CreateOptions{}); err != nil {
		h.t.Fatal(err)
	}
	h.eventually("the scheduler knows the node", func() bool { return h.sched.Cache.NodeCount() >= want })
}

func (h *host) pod(name string) *corev1.Pod {
	h.t.Helper()
	pod, err := h.client.CoreV1().Pods("ns").Get(h.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	return pod
}

// bigIsGated reports whether the queue itself holds the pod "big" as gated by the plugin.
func (h *host) bigIsGated() bool {
	info, ok := h.sched.SchedulingQueue.GetPod("big", "ns", nil)
	return ok && info.Gated() && info.GetGatingPlugin() == Name
}

func node(name, cpu string) *corev1.Node {
	return st.MakeNode().Name(name).Label(corev1.LabelHostname, name).
		Capacity(map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: "8Gi", corev1.ResourcePods: "110"}).Obj()
}

func podWith(name, cpu string) *corev1.Pod {
	return st.MakePod().Name(name).Namespace("ns").UID("uid-" + name).SchedulerName(corev1.DefaultSchedulerName).
		Req(map[corev1.ResourceName]string{corev1.ResourceCPU: cpu}).Obj()
}
