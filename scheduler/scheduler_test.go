// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	"k8s.io/utils/clock"
)

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
			h.eventually("the queue holds the pod as gated", h.bigIsGated)
			h.gate.Reserve("uid-big", "ours")
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
		name string
		pod  func(*corev1.Pod)
		key  types.NamespacedName
		uid  types.UID
		want string
	}{
		{name: "not nominated", key: key, uid: "uid-big", want: "ours"},
		{name: "same node", key: key, uid: "uid-big", pod: func(p *corev1.Pod) { p.Status.NominatedNodeName = "ours" }, want: "ours"},
		{name: "a node of a plan that failed", key: key, uid: "uid-big", pod: func(p *corev1.Pod) { p.Status.NominatedNodeName = "theirs" }, want: "ours"},
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
				if err := n.Nominate(t.Context(), tc.key, tc.uid, "ours"); err != nil {
					t.Fatal(err)
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
	if got := h.listener.queued; len(got) == 0 || got[0] != len(pods) {
		t.Errorf("Queued with %v, want %d first", got, len(pods))
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
