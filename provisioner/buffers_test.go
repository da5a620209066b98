// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	buffersv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"

	"github.com/slipway-sh/slipway/provisioner/demand"
	"github.com/slipway-sh/slipway/test/builder"
)

// spareBuffers are real buffers that note what they are told.
type spareBuffers struct {
	*demand.Buffers

	mu   sync.Mutex
	last demand.Kept
	gone bool
}

func (s *spareBuffers) Wanted(ctx context.Context) []demand.Buffer {
	s.mu.Lock()
	gone := s.gone
	s.mu.Unlock()
	if gone {
		return nil
	}
	return s.Buffers.Wanted(ctx)
}

func (s *spareBuffers) Tell(_ context.Context, _ demand.Buffer, k demand.Kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = k
}

// told is what was last said about the buffer.
func (s *spareBuffers) told() demand.Kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// delete takes the buffer away.
func (s *spareBuffers) delete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
}

// keepsFree gives the bed a buffer of n pods of 3 cores, of which a small node holds one and a large one five.
func (b *bed) keepsFree(n int32) *spareBuffers {
	template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "three", UID: "t"}, Template: corev1.PodTemplateSpec{Spec: pod("x", "3").Spec}}
	buffer := &buffersv1beta1.CapacityBuffer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "spare", UID: "b"},
		Spec:       buffersv1beta1.CapacityBufferSpec{PodTemplateRef: &buffersv1beta1.LocalObjectRef{Name: "three"}, Replicas: new(n)},
	}
	kube := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(template, buffer).Build()
	s := &spareBuffers{Buffers: &demand.Buffers{Kube: kube, Clock: clock.RealClock{}}}
	b.Buffers = s
	return s
}

// used is the CPU that disruption sees used on each claim's node, in cores.
func (b *bed) used() map[string]float64 {
	b.t.Helper()
	v, err := b.View(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	out := map[string]float64{}
	for _, n := range v.Nodes {
		out[n.Claim] = float64(n.Used.CPU) / 1000
	}
	return out
}

// bind puts a pod on a node, as its scheduler does.
func (b *bed) bind(p *corev1.Pod, node string) {
	bound := p.DeepCopy()
	bound.Spec.NodeName, bound.Status.Phase = node, corev1.PodRunning
	b.cluster.Put(bound)
	b.onPod(b.ctx, bound, false, true)
}

// TestBufferLife follows the room of a buffer: bought once, held against disruption, taken by a pod, bought again.
func TestBufferLife(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		s := b.keepsFree(1)
		b.run()
		b.pass(bufferEvery)
		c := b.claim()
		want := map[string]string{BuffersAnnotation: "default/spare"}
		got := maps.Clone(c.Annotations)
		maps.DeleteFunc(got, func(key, _ string) bool {
			return !slices.Contains([]string{BuffersAnnotation, PodsAnnotation, AheadAnnotation, OfferedAnnotation}, key)
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("annotations of the claim (-want +got):\n%s", diff)
		}
		if want := (demand.Kept{Coming: 1}); s.told() != want {
			t.Errorf("told %+v, want %+v", s.told(), want)
		}
		b.pass(time.Minute)
		b.arrive(b.claim(), "n1") // fails if more was bought
		b.pass(bufferEvery)
		if want := (demand.Kept{There: 1}); s.told() != want {
			t.Errorf("told %+v, want %+v", s.told(), want)
		}
		if got := b.used(); got[c.Name] != 3 || !b.KeptFree(c.Name) {
			t.Errorf("disruption sees %v cores used, kept free: %v; want the room taken", got, b.KeptFree(c.Name))
		}
		if p := b.reserved(); len(p) > 0 {
			t.Errorf("room is kept against pods: %v", p)
		}
		b.bind(pod("real", "9"), "n1") // the large node has 16
		b.pass(bufferEvery)
		if got := len(b.written()); got != 1 {
			t.Errorf("%d claims, want one: there is room enough beside the pod", got)
		}
		b.bind(pod("more", "5"), "n1")
		b.pass(bufferEvery)
		if got := len(b.written()); got != 2 {
			t.Errorf("%d claims, want the room refilled", got)
		}
		s.delete()
		b.pass(bufferEvery)
		if b.KeptFree(c.Name) || b.used()[c.Name] != 14 {
			t.Errorf("room is kept for a buffer that is gone: %v", b.used())
		}
	})
}

// TestPodsTakeRoomOnItsWay checks that a pod that fits nowhere is planned on a node that was bought for a buffer, and that
// the buffer is refilled.
func TestPodsTakeRoomOnItsWay(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		s := b.keepsFree(1)
		b.run()
		b.pass(bufferEvery)
		first := b.claim().Name
		b.offer(pod("real", "3"))
		if e, ok := b.ledger.get("real"); !ok || e.claim != first {
			t.Fatalf("the pod is planned on %q, want %q, which has room and is on its way", e.claim, first)
		}
		b.pass(bufferPause + bufferEvery)
		if got := len(b.written()); got != 2 {
			t.Errorf("%d claims, want the room refilled", got)
		}
		if want := (demand.Kept{Coming: 1}); s.told() != want {
			t.Errorf("told %+v, want %+v", s.told(), want)
		}
	})
}

// TestBuffersSurviveRestarts checks that the process that follows buys nothing for what is on its way.
func TestBuffersSurviveRestarts(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		s := b.keepsFree(7)
		b.run()
		b.pass(bufferEvery)
		bought := len(b.written())
		next := b.process(nil)
		next.Buffers = s
		ctx, cancel := context.WithCancel(b.ctx)
		defer cancel()
		go func() {
			if err := next.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		}()
		next.Leading()
		b.pass(time.Minute)
		if got := len(b.written()); got != bought || bought == 0 {
			t.Errorf("%d claims after a restart, %d before", got, bought)
		}
	})
}

// TestBufferThatFitsNowhere checks that it is told why, and that its room is bought once when there is something to buy.
func TestBufferThatFitsNowhere(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		s := b.keepsFree(1)
		b.cluster.Sell(builder.DefaultClass, builder.Catalog()) // sold out
		b.run()
		b.pass(bufferEvery)
		if s.told().Why == "" || s.told().There+s.told().Coming > 0 {
			t.Errorf("told %+v, want the reason", s.told())
		}
		b.cluster.Sell(builder.DefaultClass, shop())
		b.pass(time.Minute)
		if got := len(b.written()); got != 1 {
			t.Fatalf("%d claims when there is something to buy again, want 1", got)
		}
	})
}

// TestNoOtherPodGivesRoomUp checks that a claim bought for a buffer is not cancelled when a pod that was to use it goes.
func TestNoOtherPodGivesRoomUp(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.keepsFree(1)
		b.run()
		b.pass(bufferEvery)
		p := pod("real", "1")
		b.offer(p)
		first := b.claim().Name
		b.cluster.Delete(p)
		b.onPod(b.ctx, p, true, false)
		b.pass(2 * cancelAfter)
		if got := b.live(); len(got) != 1 || got[0] != first {
			t.Errorf("claims %v, want the buffer's", got)
		}
	})
}

// TestBuffersWaitForNoPlan checks that what became of a buffer is found out while a plan is at work, and that only a purchase waits for it.
func TestBuffersWaitForNoPlan(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		s := b.keepsFree(1)
		b.run()
		b.pass(2 * time.Second)
		if got := len(b.written()); got != 1 || s.told().Coming != 1 {
			t.Fatalf("%d claims, told %+v: the room was not bought", got, s.told())
		}
		b.steps.Lock()
		defer b.steps.Unlock()
		s.mu.Lock()
		s.last = demand.Kept{}
		s.mu.Unlock()
		b.pass(2 * time.Second)
		if s.told().Coming != 1 {
			t.Errorf("while a plan is at work: told %+v, want one chunk coming", s.told())
		}
	})
}
