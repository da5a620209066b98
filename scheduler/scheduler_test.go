// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
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

func (s *fakeSink) Offer(pod *corev1.Pod) (bool, string) {
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
	offers  func() int
}

func (l *fakeListener) Leading() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leading++
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
	ctx, cancel := context.WithCancel(t.Context())
	h := &host{t: t, client: fake.NewClientset(objects...), sink: sink, gate: NewGate(clock.RealClock{}, time.Minute)}
	h.client.PrependReactor("create", "pods", h.bindReactor)
	metrics, err := NewMetrics(prometheus.NewRegistry(), h.gate)
	if err != nil {
		t.Fatal(err)
	}
	core := Core{Sink: sink, Gate: h.gate, Metrics: metrics}
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

// TestPodLife is the whole path: the pod fails, is offered once, sleeps through
// foreign events, and is bound to its node the moment it is released.
func TestPodLife(t *testing.T) {
	for _, tc := range []struct {
		name  string
		async bool
		nodes []runtime.Object
	}{
		{name: "a node that is too small", nodes: []runtime.Object{node("small", "1")}},
		{name: "a node that is too small, asynchronous API calls", async: true, nodes: []runtime.Object{node("small", "1")}},
		{name: "no node at all"},
		{name: "no node at all, asynchronous API calls", async: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.SchedulerAsyncAPICalls, tc.async)
			h := startHost(t, &fakeSink{}, tc.nodes...)
			if h.gate.deadline != 77*time.Second {
				t.Errorf("gate deadline = %v, want the one of the profile's arguments", h.gate.deadline)
			}
			h.create(podWith("big", "4"))
			h.eventually("the queue holds the pod as gated", h.bigIsGated)

			h.addNode(node("other-1", "1"))
			h.addNode(node("other-2", "1"))
			h.create(podWith("little", "100m"))
			h.eventually("a pod that fits is bound", func() bool { return h.pod("little").Spec.NodeName != "" })
			if got := h.sink.count("big"); got != 1 {
				t.Errorf("the parked pod was offered %d times after foreign events, want 1", got)
			}

			h.gate.Reserve("uid-big", "ours")
			if err := h.nominator.Nominate(t.Context(), types.NamespacedName{Namespace: "ns", Name: "big"}, "uid-big", "ours"); err != nil {
				t.Fatal(err)
			}
			h.eventually("the pod is nominated", func() bool { return h.pod("big").Status.NominatedNodeName == "ours" })
			h.addNode(node("ours", "8"))
			if !h.bigIsGated() {
				t.Error("the pod left its gate without a release")
			}
			h.gate.Release("uid-big")
			h.eventually("the pod is bound", func() bool { return h.pod("big").Spec.NodeName == "ours" })
			h.eventually("the gate forgets the pod", func() bool {
				h.gate.mu.Lock()
				defer h.gate.mu.Unlock()
				return len(h.gate.pods) == 0
			})
			if got := h.sink.count("big"); got != 1 {
				t.Errorf("the pod was offered %d times, want 1", got)
			}
			if got := h.sink.count("little"); got != 0 {
				t.Errorf("the pod that fits was offered %d times, want 0", got)
			}
		})
	}
}

func TestConditionSaysWhy(t *testing.T) {
	for _, tc := range []struct {
		name  string
		node  string
		nodes []runtime.Object
		want  string
	}{
		{
			name: "filtered", nodes: []runtime.Object{node("small", "1")},
			want: "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling., waiting for Slipway to provide a node",
		},
		{name: "no nodes", want: "0/0 nodes are available: waiting for Slipway to provide a node"},
		{name: "no nodes, node reserved", node: "ours", want: `0/0 nodes are available: waiting for node "ours", provided by Slipway`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := startHost(t, &fakeSink{node: tc.node}, tc.nodes...)
			h.create(podWith("big", "4"))
			h.eventually("the pod has its condition", func() bool { return len(h.pod("big").Status.Conditions) > 0 })
			got := h.pod("big").Status.Conditions[0]
			if got.Type != corev1.PodScheduled || got.Status != corev1.ConditionFalse || got.Reason != corev1.PodReasonUnschedulable || got.Message != tc.want {
				t.Errorf("condition = %s=%s %s %q, want PodScheduled=False Unschedulable %q", got.Type, got.Status, got.Reason, got.Message, tc.want)
			}
		})
	}
}

func TestPreemptionGoesFirst(t *testing.T) {
	victim := podWith("victim", "3")
	victim.Spec.NodeName = "full"
	victim.Spec.Priority = new(int32)
	h := startHost(t, &fakeSink{}, node("full", "4"), victim)
	urgent := podWith("urgent", "3")
	high := int32(1000)
	urgent.Spec.Priority = &high
	h.create(urgent)
	h.eventually("the preemptor is bound", func() bool { return h.pod("urgent").Spec.NodeName == "full" })
	if got := h.sink.count("urgent"); got != 0 {
		t.Errorf("the preemptor was offered %d times, want 0: preemption helps it", got)
	}
}

func TestNominationSurvivesFailingCycles(t *testing.T) {
	h := startHost(t, &fakeSink{node: "ours"}, node("small", "1"))
	h.create(podWith("big", "4"))
	h.eventually("the pod is nominated", func() bool { return h.pod("big").Status.NominatedNodeName == "ours" })
	h.eventually("the queue holds the pod as gated", h.bigIsGated)
	h.gate.Release("uid-big") // too early: the node is not there
	h.eventually("the pod is offered again", func() bool { return h.sink.count("big") >= 2 })
	h.eventually("the queue holds the pod as gated again", h.bigIsGated)
	if got := h.pod("big").Status.NominatedNodeName; got != "ours" {
		t.Errorf("nominatedNodeName = %q, want it kept", got)
	}
	for _, action := range h.client.Actions() {
		patch, ok := action.(clienttesting.PatchAction)
		if ok && action.GetResource().Resource == "pods" && strings.Contains(string(patch.GetPatch()), `"nominatedNodeName":null`) {
			t.Error("the nomination was cleared in between")
		}
	}
}

func TestNominate(t *testing.T) {
	key := types.NamespacedName{Namespace: "ns", Name: "big"}
	for _, tc := range []struct {
		name    string
		pod     func(*corev1.Pod)
		key     types.NamespacedName
		uid     types.UID
		want    string
		wantErr error
	}{
		{name: "not nominated", key: key, uid: "uid-big", want: "ours"},
		{name: "same node", key: key, uid: "uid-big", pod: func(p *corev1.Pod) { p.Status.NominatedNodeName = "ours" }, want: "ours"},
		{name: "another node", key: key, uid: "uid-big", pod: func(p *corev1.Pod) { p.Status.NominatedNodeName = "theirs" }, want: "theirs", wantErr: ErrNominated},
		{name: "recreated", key: key, uid: "uid-old"},
		{name: "unknown", key: types.NamespacedName{Namespace: "ns", Name: "gone"}, uid: "uid-big"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pod := podWith("big", "4")
				if tc.pod != nil {
					tc.pod(pod)
				}
				client := fake.NewClientset(pod)
				index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
				if err := index.Add(pod); err != nil {
					t.Fatal(err)
				}
				n := &Nominator{pods: corelisters.NewPodLister(index), client: client, slots: make(chan struct{}, 1)}
				if err := n.Nominate(t.Context(), tc.key, tc.uid, "ours"); !errors.Is(err, tc.wantErr) {
					t.Fatalf("Nominate() error = %v, want %v", err, tc.wantErr)
				}
				synctest.Wait()
				got, err := client.CoreV1().Pods("ns").Get(t.Context(), "big", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if got.Status.NominatedNodeName != tc.want {
					t.Errorf("nominatedNodeName = %q, want %q", got.Status.NominatedNodeName, tc.want)
				}
			})
		})
	}
}

func TestRefusedPodKeepsItsNomination(t *testing.T) {
	for _, tc := range []struct {
		name  string
		nodes []runtime.Object
	}{
		{name: "filtered", nodes: []runtime.Object{node("small", "1")}},
		{name: "no nodes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := startHost(t, &fakeSink{refuse: true, node: "ours"}, tc.nodes...)
			h.create(podWith("big", "4"))
			h.eventually("the pod is nominated", func() bool { return h.pod("big").Status.NominatedNodeName == "ours" })
			if got := h.gate.Closed(); got != 0 {
				t.Errorf("Closed() = %d, want 0", got)
			}
		})
	}
}

func TestRefusedPodIsLeftToTheScheduler(t *testing.T) {
	h := startHost(t, &fakeSink{refuse: true}, node("small", "1"))
	h.create(podWith("big", "4"))
	h.eventually("the pod is offered", func() bool { return h.sink.count("big") >= 1 })
	h.addNode(node("large", "8"))
	h.eventually("the pod is bound without a release", func() bool { return h.pod("big").Spec.NodeName == "large" })
	if got := h.gate.Closed(); got != 0 {
		t.Errorf("Closed() = %d, want 0", got)
	}
}

func TestQueueListener(t *testing.T) {
	var pods []runtime.Object
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		pods = append(pods, podWith(name, "4"))
	}
	h := startHost(t, &fakeSink{}, append(pods, node("small", "1"))...)
	h.eventually("the queue drains after the burst", func() bool {
		h.listener.mu.Lock()
		defer h.listener.mu.Unlock()
		return len(h.listener.drained) > 0
	})
	h.listener.mu.Lock()
	defer h.listener.mu.Unlock()
	if h.listener.leading != 1 {
		t.Errorf("Leading called %d times, want 1", h.listener.leading)
	}
	if got := h.listener.drained[0]; got != len(pods) {
		t.Errorf("first Drained after %d offers, want after all %d", got, len(pods))
	}
}

func TestHookNeedsThePlugin(t *testing.T) {
	client := fake.NewClientset()
	sched, err := scheduler.New(t.Context(), client, scheduler.NewInformerFactory(client, 0, nil), nil,
		profile.NewRecorderFactory(events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})))
	if err != nil {
		t.Fatal(err)
	}
	if err := Hook(sched, Core{Gate: NewGate(clock.RealClock{}, time.Minute)}, &fakeListener{}); err == nil {
		t.Error("Hook() on a scheduler without the plugin gave no error")
	}
}
