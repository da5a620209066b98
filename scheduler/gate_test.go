// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// recorder stands for the scheduling queue: it notes activations, and that the
// gate of an activated pod is open by then.
type recorder struct {
	t    *testing.T
	gate *Gate

	mu   sync.Mutex
	pods []string
}

func (r *recorder) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	for key, pod := range pods {
		if closed, _ := r.gate.state(pod.UID); closed {
			r.t.Errorf("pod %q activated behind a closed gate", key)
		}
		r.mu.Lock()
		r.pods = append(r.pods, key)
		r.mu.Unlock()
	}
}

func (r *recorder) activated() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(slices.Values(r.pods))
}

func newTestGate(t *testing.T) (*Gate, *recorder) {
	gate := NewGate(clock.RealClock{}, time.Minute)
	r := &recorder{t: t, gate: gate}
	gate.activator = r
	return gate, r
}

// pass lets time go by in the test's bubble, and everything due then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func testPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID("uid-" + name)}}
}

func TestGateRelease(t *testing.T) {
	gate, r := newTestGate(t)
	for _, name := range []string{"a", "b", "c"} {
		if got := gate.enter(testPod(name)); got != entryNew {
			t.Fatalf("enter(%s) = %v, want a new entry", name, got)
		}
	}
	if got := gate.Closed(); got != 3 {
		t.Fatalf("Closed() = %d, want 3", got)
	}
	gate.Release("uid-a", "uid-c", "uid-unknown")
	gate.Release("uid-a")
	if diff := cmp.Diff([]string{"ns/a", "ns/c"}, r.activated()); diff != "" {
		t.Errorf("activated (-want +got):\n%s", diff)
	}
	if closed, _ := gate.state("uid-b"); !closed {
		t.Error("pod b was released, want it parked")
	}
	if got := gate.Closed(); got != 1 {
		t.Errorf("Closed() = %d, want 1", got)
	}
}

func TestGateReleaseWaitsForTheCache(t *testing.T) {
	for _, tc := range []struct {
		name   string
		seenIn time.Duration // when the scheduler's cache has the node; 0 never
		wantIn time.Duration
	}{
		{name: "cache follows", seenIn: 3 * time.Millisecond, wantIn: 3 * time.Millisecond},
		{name: "cache never follows", wantIn: nodePolls * nodePoll},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate, r := newTestGate(t)
				start := time.Now()
				gate.current = func(string) bool { return tc.seenIn > 0 && time.Since(start) >= tc.seenIn }
				gate.enter(testPod("a"))
				gate.enter(testPod("b"))
				gate.Reserve("uid-a", "node-1")
				gate.Release("uid-a", "uid-b")
				if diff := cmp.Diff([]string{"ns/b"}, r.activated()); diff != "" {
					t.Fatalf("activated at once (-want +got):\n%s", diff)
				}
				for len(r.activated()) < 2 && time.Since(start) < time.Second {
					pass(nodePoll)
				}
				if got := time.Since(start); got != tc.wantIn {
					t.Errorf("pod with a reserved node activated after %v, want %v", got, tc.wantIn)
				}
			})
		})
	}
}

func TestGateEnter(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(*Gate)
		want entry
	}{
		{name: "first failure", do: func(*Gate) {}, want: entryNew},
		{name: "failure right after the release of a reserved node", do: func(g *Gate) {
			g.enter(testPod("a"))
			g.Reserve("uid-a", "node-1")
			g.Release("uid-a")
			pass(time.Millisecond)
		}, want: entryRetry},
		{name: "second failure after a release", do: func(g *Gate) {
			g.enter(testPod("a"))
			g.Reserve("uid-a", "node-1")
			g.Release("uid-a")
			g.enter(testPod("a"))
			pass(retryDelay)
		}, want: entryNew},
		{name: "late failure after a release", do: func(g *Gate) {
			g.enter(testPod("a"))
			g.Reserve("uid-a", "node-1")
			g.Release("uid-a")
			pass(retryWindow)
		}, want: entryNew},
		{name: "release without a node", do: func(g *Gate) {
			g.enter(testPod("a"))
			g.Release("uid-a")
		}, want: entryNew},
		{name: "released by the deadline", do: func(g *Gate) {
			g.enter(testPod("a"))
			g.Reserve("uid-a", "node-1")
			pass(time.Minute)
			g.sweep()
		}, want: entryNew},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate, _ := newTestGate(t)
				tc.do(gate)
				if got := gate.enter(testPod("a")); got != tc.want {
					t.Errorf("enter() = %v, want %v", got, tc.want)
				}
				if closed, _ := gate.state("uid-a"); !closed {
					t.Error("the gate is open, want it closed whatever the entry")
				}
				if got := gate.Closed(); got != 1 {
					t.Errorf("Closed() = %d, want 1", got)
				}
			})
		})
	}
}

func TestGateRetryOpensByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, r := newTestGate(t)
		gate.enter(testPod("a"))
		gate.Reserve("uid-a", "node-1")
		gate.Release("uid-a")
		gate.enter(testPod("a"))
		if len(r.activated()) != 1 {
			t.Fatalf("activated %d times before the retry, want 1", len(r.activated()))
		}
		pass(retryDelay)
		if len(r.activated()) != 2 || gate.Closed() != 0 {
			t.Errorf("activated %d times with %d closed, want 2 and 0", len(r.activated()), gate.Closed())
		}
	})
}

func TestGateSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, r := newTestGate(t)
		gate.enter(testPod("old"))
		pass(40 * time.Second)
		gate.enter(testPod("new"))
		pass(20 * time.Second)
		if got := gate.sweep(); got != 1 {
			t.Fatalf("sweep() = %d, want 1", got)
		}
		if diff := cmp.Diff([]string{"ns/old"}, r.activated()); diff != "" {
			t.Errorf("activated (-want +got):\n%s", diff)
		}
		gate.pass("uid-new")
		pass(rememberFor - time.Second)
		gate.sweep()
		gate.Release("uid-new")
		if diff := cmp.Diff([]string{"ns/new", "ns/old"}, slices.Sorted(slices.Values(r.activated()))); diff != "" {
			t.Errorf("a refused pod is not known to a release after some deadlines (-want +got):\n%s", diff)
		}
		pass(time.Second)
		gate.sweep()
		if len(gate.pods) != 0 {
			t.Errorf("%d open pods are still known after %v, want them dropped", len(gate.pods), rememberFor)
		}
	})
}

func TestGateRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, r := newTestGate(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); gate.Run(ctx) }()
		gate.enter(testPod("a"))
		pass(59 * time.Second)
		if len(r.activated()) != 0 {
			t.Errorf("activated %v before the deadline", r.activated())
		}
		pass(time.Minute / sweepsPerDeadline)
		if diff := cmp.Diff([]string{"ns/a"}, r.activated()); diff != "" {
			t.Errorf("activated after the deadline (-want +got):\n%s", diff)
		}
		cancel()
		<-done
	})
}

func TestGateForgetsPodsByEvents(t *testing.T) {
	bound := testPod("a")
	bound.Spec.NodeName = "node-1"
	for _, tc := range []struct {
		name string
		do   func(cache.ResourceEventHandler)
		want int
	}{
		{name: "status update", do: func(h cache.ResourceEventHandler) { h.OnUpdate(testPod("a"), testPod("a")) }, want: 1},
		{name: "bound", do: func(h cache.ResourceEventHandler) { h.OnUpdate(testPod("a"), bound) }},
		{name: "deleted", do: func(h cache.ResourceEventHandler) { h.OnDelete(testPod("a")) }},
		{name: "deletion missed by the watch", do: func(h cache.ResourceEventHandler) {
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: "ns/a", Obj: testPod("a")})
		}},
		{name: "namesake deleted", do: func(h cache.ResourceEventHandler) {
			h.OnDelete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", UID: "uid-other"}})
		}, want: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			gate, _ := newTestGate(t)
			gate.enter(testPod("a"))
			tc.do(gate.podEvents())
			if got := gate.Closed(); got != tc.want {
				t.Errorf("Closed() = %d, want %d", got, tc.want)
			}
		})
	}
}

func BenchmarkGateState(b *testing.B) {
	gate := NewGate(clock.RealClock{}, time.Minute)
	gate.enter(testPod("a"))
	for b.Loop() {
		gate.state("uid-a")
	}
}

// BenchmarkOffer is what a failed scheduling cycle pays for the plugin, without the sink.
func BenchmarkOffer(b *testing.B) {
	gate := NewGate(clock.RealClock{}, time.Minute)
	metrics, err := NewMetrics(prometheus.NewRegistry(), gate)
	if err != nil {
		b.Fatal(err)
	}
	core := Core{Sink: &fakeSink{}, Gate: gate, Metrics: metrics}
	pod := testPod("a")
	for b.Loop() {
		core.offer(klog.Background(), discard{}, pod, nothingTaken)
	}
}

// discard is a queue that takes no notice.
type discard struct{}

func (discard) Activate(klog.Logger, map[string]*corev1.Pod) {}

// A reservation that comes while the scheduler's handling of the failure is outstanding is written with it.
func TestGateCarriesTheNomination(t *testing.T) {
	gate, _ := newTestGate(t)
	if gate.book("uid-a") {
		t.Fatal("an unknown pod is parked")
	}
	gate.enter(testPod("a"))
	if gate.Reserve("uid-a", "early") {
		t.Error("carried before the failure is handled")
	}
	if !gate.book("uid-a") {
		t.Fatal("a parked pod is not booked")
	}
	if !gate.Reserve("uid-a", "node-1") {
		t.Error("not carried although the pod's status is about to be written")
	}
	if got := gate.settle("uid-a"); got != "node-1" {
		t.Errorf("node to nominate = %q, want the one reserved meanwhile", got)
	}
	if gate.Reserve("uid-a", "node-1") {
		t.Error("carried although the status has been written")
	}
	gate.Release("uid-a")
	if gate.book("uid-a") {
		t.Error("a released pod is parked")
	}
}
