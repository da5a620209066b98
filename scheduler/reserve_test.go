// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

// fakeRoom keeps room on nodes for pods, against everybody but those.
type fakeRoom map[string][]*corev1.Pod

func (r fakeRoom) Kept() sets.Set[string] { return sets.KeySet(r) }

func (r fakeRoom) Against(pod *corev1.Pod, node string) []*corev1.Pod {
	for _, p := range r[node] {
		if p.UID == pod.UID {
			return nil
		}
	}
	return r[node]
}

func TestRoomIsKeptForThePodsANodeWasBoughtFor(t *testing.T) {
	const ours = "ours"
	asks := func(name string, req map[corev1.ResourceName]string, port int32) *corev1.Pod {
		w := st.MakePod().Name(name).UID(name).Req(req)
		if port != 0 {
			w = w.ContainerPort([]corev1.ContainerPort{{HostPort: port, ContainerPort: port, Protocol: corev1.ProtocolTCP}})
		}
		return w.Obj()
	}
	cpu := func(name, cpu string) *corev1.Pod {
		return asks(name, map[corev1.ResourceName]string{corev1.ResourceCPU: cpu}, 0)
	}
	n := st.MakeNode().Name(ours).Capacity(map[corev1.ResourceName]string{
		corev1.ResourceCPU: "4", corev1.ResourceMemory: "8Gi", corev1.ResourcePods: "4", "example.com/gpu": "1",
	}).Obj()
	planned := cpu("planned", "3")
	for _, tc := range []struct {
		name string
		pod  *corev1.Pod
		kept []*corev1.Pod
		on   []*corev1.Pod
		want fwk.Code
	}{
		{name: "takes room that is kept", pod: cpu("foreign", "2"), kept: []*corev1.Pod{planned}, want: fwk.Unschedulable},
		{name: "leaves enough", pod: cpu("foreign", "1"), kept: []*corev1.Pod{planned}},
		{name: "leaves too little beside what runs", pod: cpu("foreign", "1"), kept: []*corev1.Pod{planned}, on: []*corev1.Pod{cpu("running", "1")}, want: fwk.Unschedulable},
		{name: "its own room", pod: planned, kept: []*corev1.Pod{planned, cpu("sibling", "3")}},
		{name: "kept pods that are there count once", pod: cpu("foreign", "1"), kept: []*corev1.Pod{planned}, on: []*corev1.Pod{planned}},
		{name: "asks for nothing that is short", pod: asks("foreign", map[corev1.ResourceName]string{corev1.ResourceMemory: "1Gi"}, 0), kept: []*corev1.Pod{cpu("a", "4")}},
		{name: "takes the last place for a pod", pod: asks("foreign", nil, 0), kept: []*corev1.Pod{cpu("a", "1"), cpu("b", "1"), cpu("c", "1"), cpu("d", "1")}, want: fwk.Unschedulable},
		{
			name: "takes the device", pod: asks("foreign", map[corev1.ResourceName]string{"example.com/gpu": "1"}, 0),
			kept: []*corev1.Pod{asks("a", map[corev1.ResourceName]string{"example.com/gpu": "1"}, 0)}, want: fwk.Unschedulable,
		},
		{name: "takes the host port", pod: asks("foreign", nil, 80), kept: []*corev1.Pod{asks("a", nil, 80)}, want: fwk.Unschedulable},
		{name: "another host port", pod: asks("foreign", nil, 81), kept: []*corev1.Pod{asks("a", nil, 80)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			info := framework.NewNodeInfo(tc.on...)
			info.SetNode(n)
			p := &Plugin{core: Core{Reservations: fakeRoom{ours: tc.kept}}}
			if got := p.Filter(t.Context(), nil, tc.pod, info); got.Code() != tc.want {
				t.Errorf("Filter() = %v, want %v", got, tc.want)
			}
		})
	}
}

// TestFilterIsSkippedInTheCommonCase checks that nothing is paid for while no node arrives, and that batching of equal pods
// stops only then.
func TestFilterIsSkippedInTheCommonCase(t *testing.T) {
	daemon := podWith("daemon", "1")
	daemon.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: new(true)}}
	for name, tc := range map[string]struct {
		room     Reservations
		pod      *corev1.Pod
		skip     bool
		unsigned bool
	}{
		"no reservations at all":     {nil, podWith("p", "1"), true, false},
		"none at the moment":         {fakeRoom{}, podWith("p", "1"), true, false},
		"a node arrives":             {fakeRoom{"n": nil}, podWith("p", "1"), false, true},
		"a node arrives, DaemonSet ": {fakeRoom{"n": nil}, daemon, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Plugin{core: Core{Reservations: tc.room}}
			if _, got := p.PreFilter(t.Context(), nil, tc.pod, nil); got.IsSkip() != tc.skip {
				t.Errorf("PreFilter() = %v, want skip %v", got, tc.skip)
			}
			if _, got := p.SignPod(t.Context(), tc.pod); (got.Code() == fwk.Unschedulable) != tc.unsigned {
				t.Errorf("SignPod() = %v, want unsigned %v", got, tc.unsigned)
			}
		})
	}
}

// TestForeignPodIsKeptOutUntilThePlannedPodIsThere runs it in a real scheduler: the only node is kept, so a foreign pod is
// offered like any that fits nowhere, and has the room when it is given up.
func TestForeignPodIsKeptOutUntilThePlannedPodIsThere(t *testing.T) {
	room := &changingRoom{}
	room.set(fakeRoom{"ours": {podWith("planned", "3")}})
	h := startHostWith(t, &fakeSink{refuse: true}, room, node("ours", "4"))
	h.create(podWith("foreign", "2"))
	h.eventually("the foreign pod is offered", func() bool { return h.sink.count("foreign") > 0 })
	if got := h.pod("foreign").Spec.NodeName; got != "" {
		t.Fatalf("the foreign pod is bound to %q, whose room is kept", got)
	}
	h.create(podWith("small", "1"))
	h.eventually("a pod that leaves enough room is bound", func() bool { return h.pod("small").Spec.NodeName == "ours" })
	room.set(nil)
	h.gate.Release("uid-foreign") // what the sink does with refused pods when room is given up
	h.eventually("the foreign pod is bound", func() bool { return h.pod("foreign").Spec.NodeName == "ours" })
}

// BenchmarkFilterOfOtherNodes is what each node costs that no room is kept on, while some other node arrives.
func BenchmarkFilterOfOtherNodes(b *testing.B) {
	info := framework.NewNodeInfo()
	info.SetNode(node("other", "4"))
	p := &Plugin{core: Core{Reservations: fakeKept{sets.New("ours")}}}
	pod := podWith("p", "1")
	for b.Loop() {
		p.Filter(b.Context(), nil, pod, info)
	}
}

// BenchmarkFilterOfAKeptNode is what a foreign pod costs on a node that waits for 50 pods.
func BenchmarkFilterOfAKeptNode(b *testing.B) {
	info := framework.NewNodeInfo()
	info.SetNode(node("ours", "64"))
	var kept []*corev1.Pod
	for range 50 {
		kept = append(kept, podWith("planned", "1"))
	}
	p := &Plugin{core: Core{Reservations: fakeRoom{"ours": kept}}}
	pod := podWith("p", "1")
	for b.Loop() {
		p.Filter(b.Context(), nil, pod, info)
	}
}

// changingRoom is a fakeRoom that changes while the scheduler runs.
type changingRoom struct{ now atomic.Pointer[fakeRoom] }

func (c *changingRoom) set(r fakeRoom)         { c.now.Store(&r) }
func (c *changingRoom) Kept() sets.Set[string] { return c.now.Load().Kept() }
func (c *changingRoom) Against(pod *corev1.Pod, node string) []*corev1.Pod {
	return c.now.Load().Against(pod, node)
}

// fakeKept is a set that costs what a real one costs.
type fakeKept struct{ sets.Set[string] }

func (k fakeKept) Kept() sets.Set[string]                  { return k.Set }
func (fakeKept) Against(*corev1.Pod, string) []*corev1.Pod { return nil }
