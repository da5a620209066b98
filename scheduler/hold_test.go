// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
)

// autoscalersCount says whether other autoscalers would buy a node for the pod, by
// their own rules, which agree: Karpenter 1.14 takes pods without a node and without
// a nomination whose PodScheduled condition has the reason Unschedulable
// (IsProvisionable in pkg/utils/pod); Cluster Autoscaler takes those whose condition
// is also False, and counts a nominated pod as one that has its node
// (ArrangePodsBySchedulability in cluster-autoscaler/utils/kubernetes). Neither looks
// at the pod's scheduler, unless Cluster Autoscaler is told to
// (--allowed-scheduler-names).
func autoscalersCount(pod *corev1.Pod) bool {
	if pod.Spec.NodeName != "" || pod.Status.NominatedNodeName != "" {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
			return true
		}
	}
	return false
}

// witness sees every state of the pods that anybody can see, and notes those of
// them that other autoscalers would buy for.
type witness struct {
	mu      sync.Mutex
	counted map[string]bool
	last    *corev1.Pod
	done    chan struct{}
}

func (h *host) witness() *witness {
	h.t.Helper()
	w := &witness{counted: map[string]bool{}, done: make(chan struct{})}
	watch, err := h.client.CoreV1().Pods("ns").Watch(h.t.Context(), metav1.ListOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { watch.Stop(); <-w.done })
	go func() {
		defer close(w.done)
		for e := range watch.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok {
				w.mu.Lock()
				w.last = pod
				if autoscalersCount(pod) {
					w.counted[pod.Name] = true
				}
				w.mu.Unlock()
			}
		}
	}()
	return w
}

func (w *witness) names() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]bool{}
	for name := range w.counted {
		out[name] = true
	}
	return out
}

// TestNobodyElseBuysForParkedPods takes a pod from its failure to its node and holds
// every state it is seen in against the rules of other autoscalers. A pod that
// nothing can be bought for is theirs.
func TestNobodyElseBuysForParkedPods(t *testing.T) {
	for _, tc := range []struct {
		name   string
		async  bool
		refuse bool
		nodes  []runtime.Object
		want   map[string]bool
	}{
		{name: "parked", nodes: []runtime.Object{node("small", "1")}, want: map[string]bool{}},
		{name: "parked, asynchronous API calls", async: true, nodes: []runtime.Object{node("small", "1")}, want: map[string]bool{}},
		{name: "parked, no node at all", async: true, want: map[string]bool{}},
		{name: "refused", async: true, refuse: true, nodes: []runtime.Object{node("small", "1")}, want: map[string]bool{"big": true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.SchedulerAsyncAPICalls, tc.async)
			h := startHost(t, &fakeSink{refuse: tc.refuse}, tc.nodes...)
			w := h.witness()
			h.create(podWith("big", "4"))
			if tc.refuse {
				h.eventually("the pod has its condition", func() bool { return len(h.pod("big").Status.Conditions) > 0 })
			} else {
				h.eventually("the queue holds the pod as gated", h.bigIsGated)
				h.eventually("its condition waits", func() bool { h.gate.mu.Lock(); defer h.gate.mu.Unlock(); return h.gate.pods["uid-big"].held != nil })
				if got := h.pod("big").Status.Conditions; len(got) > 0 {
					t.Errorf("conditions %v before the node has a name", got)
				}
				if carried := h.gate.Reserve("uid-big", "ours"); !carried {
					t.Error("the nomination is not written with the condition")
				}
				h.eventually("the pod has condition and nomination", func() bool {
					s := h.pod("big").Status
					return len(s.Conditions) > 0 && s.NominatedNodeName == "ours"
				})
				h.addNode(node("ours", "8"))
				h.gate.Release("uid-big")
				h.eventually("the pod is bound", func() bool { return h.pod("big").Spec.NodeName == "ours" })
			}
			h.eventually("every state has been looked at", func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.last != nil && (w.last.Spec.NodeName != "" || tc.refuse && len(w.last.Status.Conditions) > 0)
			})
			if diff := cmp.Diff(tc.want, w.names()); diff != "" {
				t.Errorf("pods that others would have bought for (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHold(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(*Gate)
		want []string
	}{
		"the name comes":            {func(g *Gate) { g.Reserve("uid-a", "n") }, []string{"n"}},
		"the name comes twice":      {func(g *Gate) { g.Reserve("uid-a", "n"); g.Reserve("uid-a", "m") }, []string{"n"}},
		"no name comes":             {func(*Gate) { pass(holdLimit) }, []string{""}},
		"the name comes too late":   {func(g *Gate) { pass(holdLimit); g.Reserve("uid-a", "n") }, []string{""}},
		"released without a name":   {func(g *Gate) { g.Release("uid-a"); pass(holdLimit) }, nil},
		"refused":                   {func(g *Gate) { g.pass("uid-a"); pass(holdLimit) }, nil},
		"gone":                      {func(g *Gate) { g.Forget("uid-a"); pass(holdLimit) }, nil},
		"failed again, held anew":   {func(g *Gate) { g.Release("uid-a"); g.enter(testPod("a")); pass(holdLimit) }, nil},
		"name of another pod comes": {func(g *Gate) { g.Reserve("uid-b", "n") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate, _ := newTestGate(t)
				gate.enter(testPod("a"))
				var got []string
				if _, waits := gate.hold("uid-a", func(node string) { got = append(got, node) }); !waits {
					t.Fatal("the write of a parked pod without a node does not wait")
				}
				tc.do(gate)
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("written (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestNothingToHold(t *testing.T) {
	gate, _ := newTestGate(t)
	write := func(string) { t.Error("the gate wrote what it was not to hold") }
	if node, waits := gate.hold("uid-a", write); waits || node != "" {
		t.Errorf("hold() of an unknown pod = %q, %v", node, waits)
	}
	gate.enter(testPod("a"))
	gate.Reserve("uid-a", "n")
	if node, waits := gate.hold("uid-a", write); waits || node != "n" {
		t.Errorf("hold() of a pod with a node = %q, %v, want the node", node, waits)
	}
	gate.Release("uid-a")
	if node, waits := gate.hold("uid-a", write); waits || node != "" {
		t.Errorf("hold() of a released pod = %q, %v", node, waits)
	}
}
