// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

func pod(uid string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)}}
}

func names(pods []*corev1.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}

func TestBatchCloses(t *testing.T) {
	opts := Options{Debounce: 2 * time.Millisecond, MaxAge: 100 * time.Millisecond, MaxSize: 3}
	for name, tc := range map[string]struct {
		events   func(b *Batcher)
		want     []string
		wantTime time.Duration // since the start
	}{
		"drained queue closes after the debounce": {
			events:   func(b *Batcher) { b.Add(pod("a")); b.Drained() },
			want:     []string{"a"},
			wantTime: 2 * time.Millisecond,
		},
		"a pod within the debounce extends the batch": {
			events: func(b *Batcher) {
				b.Add(pod("a"))
				b.Drained()
				time.Sleep(time.Millisecond)
				b.Add(pod("b"))
				b.Drained()
			},
			want:     []string{"a", "b"},
			wantTime: 3 * time.Millisecond,
		},
		"a busy queue closes at the age": {
			events:   func(b *Batcher) { b.Add(pod("a")) },
			want:     []string{"a"},
			wantTime: 100 * time.Millisecond,
		},
		"a new pod makes the queue busy again": {
			events: func(b *Batcher) {
				b.Add(pod("a"))
				b.Drained()
				time.Sleep(time.Millisecond)
				b.Add(pod("b"))
			},
			want:     []string{"a", "b"},
			wantTime: 100 * time.Millisecond,
		},
		"a full batch closes at once": {
			events:   func(b *Batcher) { b.Add(pod("a")); b.Add(pod("b")); b.Add(pod("c")) },
			want:     []string{"a", "b", "c"},
			wantTime: 0,
		},
		"the same pod counts once": {
			events:   func(b *Batcher) { b.Add(pod("a")); b.Add(pod("a")); b.Add(pod("b")); b.Drained() },
			want:     []string{"a", "b"},
			wantTime: 2 * time.Millisecond,
		},
		"a removed pod is not in the batch": {
			events:   func(b *Batcher) { b.Add(pod("a")); b.Add(pod("b")); b.Remove("a"); b.Drained() },
			want:     []string{"b"},
			wantTime: 2 * time.Millisecond,
		},
		"requeued pods wait for no scheduling cycle": {
			events:   func(b *Batcher) { b.Requeue(pod("a"), pod("b")) },
			want:     []string{"a", "b"},
			wantTime: 2 * time.Millisecond,
		},
		"requeued pods do not hide a busy queue": {
			events:   func(b *Batcher) { b.Add(pod("a")); b.Requeue(pod("b")) },
			want:     []string{"a", "b"},
			wantTime: 100 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				b := New(clock.RealClock{}, opts)
				go tc.events(b)
				got, err := b.Next(t.Context())
				if err != nil {
					t.Fatalf("Next: %v", err)
				}
				if diff := cmp.Diff(tc.want, names(got.Pods)); diff != "" {
					t.Errorf("pods (-want +got):\n%s", diff)
				}
				if took := time.Since(start); took != tc.wantTime {
					t.Errorf("closed after %v, want %v", took, tc.wantTime)
				}
			})
		})
	}
}

func TestNextEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		b := New(clock.RealClock{}, Options{Debounce: 1, MaxAge: 1, MaxSize: 1})
		if _, err := b.Next(ctx); err == nil {
			t.Error("Next returned without an error although its context had ended")
		}
	})
}

// looked is what Next gave at a time.
type looked struct {
	at           time.Duration
	pods, queued int
	open         bool
}

func TestLooksAtOpenBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		start := time.Now()
		b := New(clock.RealClock{}, Options{Debounce: 2 * ms, MaxAge: 99*ms + ms/2, MaxSize: 1000, Look: 4})
		add := func(from, n int) {
			for i := range n {
				time.Sleep(ms)
				b.Queued(500 - from - i)
				b.Add(pod(fmt.Sprintf("p%d", from+i)))
			}
		}
		go func() {
			add(0, 120)   // looks at 4, 16 and 64, and a close by age
			add(120, 100) // in a rush: none
			b.Drained()
			time.Sleep(10 * ms)
			add(220, 5)
			b.Drained()
		}()
		var got []looked
		for len(got) < 8 {
			batch, err := b.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, looked{time.Since(start), len(batch.Pods), batch.Queued, batch.Open})
			if len(batch.Pods) == 16 {
				b.Remove("p0") // it has left
			}
		}
		want := []looked{
			{4 * ms, 4, 497, true},
			{16 * ms, 16, 485, true},
			{64 * ms, 63, 437, true},
			{100*ms + ms/2, 99, 0, false},
			{200*ms + ms/2, 100, 0, false},
			{222 * ms, 20, 0, false},
			{234 * ms, 4, 277, true},
			{237 * ms, 5, 0, false},
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(looked{})); diff != "" {
			t.Errorf("what Next gave (-want +got):\n%s", diff)
		}
	})
}
