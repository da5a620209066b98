// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Options bound how long a batch stays open. All have to be positive.
type Options struct {
	// Debounce is how long after the queue has drained a batch waits for another pod.
	Debounce time.Duration
	// MaxAge closes a batch that long after its first pod, drained or not.
	MaxAge time.Duration
	// MaxSize closes a batch that has that many pods.
	MaxSize int
	// Look is how many pods have to have come for a look at a batch that is still open; there is another each time that four
	// times as many have come. A batch that follows one which the queue had no time to drain in is not looked at: MaxAge after
	// MaxAge, something closes anyway. Zero for none, which is the one that need not be positive.
	Look int
}

// Batch is what a consumer gets.
type Batch struct {
	// Pods are in the order they came, never none.
	Pods []*corev1.Pod
	// Open says that this is a look at a batch that goes on: its pods stay in it unless they are removed. Queued is how many
	// pods the scheduler has still to try, some of which may fit on what there is.
	Open   bool
	Queued int
}

// Batcher collects pods. Add and Drained are called by the scheduling loop and take no more than a short lock; Next is
// called by one consumer.
type Batcher struct {
	clock clock.Clock
	opts  Options

	mu      sync.Mutex
	pods    map[types.UID]int // index in order
	order   []*corev1.Pod     // nil where a pod was removed
	first   time.Time         // when the batch began
	last    time.Time         // when the last pod came
	came    int               // pods since then, those removed included
	look    int               // the number of them for the next look, 0 for none
	rush    bool              // the last batch closed before the queue had drained, and it has not since
	drained bool              // the queue has been empty since the last pod came
	changed chan struct{}     // holds a token when Next has something to do or a time to wait for
	queued  atomic.Int64      // pods the scheduler has still to try
}

// New returns an empty batcher.
func New(c clock.Clock, o Options) *Batcher {
	return &Batcher{clock: c, opts: o, pods: map[types.UID]int{}, changed: make(chan struct{}, 1)}
}

// Add puts a pod that just failed to schedule into the open batch. The queue counts as busy until Drained is called.
func (b *Batcher) Add(pod *corev1.Pod) { b.add(false, pod) }

// Requeue puts pods back that wait for no scheduling cycle (their claim died, their pool changed).
func (b *Batcher) Requeue(pods ...*corev1.Pod) { b.add(true, pods...) }

func (b *Batcher) add(drained bool, pods ...*corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	for _, p := range pods {
		if i, ok := b.pods[p.UID]; ok {
			b.order[i] = p
			continue
		}
		if len(b.pods) == 0 {
			b.begin(now, drained)
		}
		b.pods[p.UID] = len(b.order)
		b.order = append(b.order, p)
		b.last = now
		b.drained = b.drained && drained
		b.came++
		// Whoever waits is woken when that changes what there is to do: a scheduling cycle has no time for it otherwise.
		if len(b.pods) == 1 || len(b.pods) == b.opts.MaxSize || b.came == b.look {
			b.signal()
		}
	}
}

// begin notes that a batch begins with the next pod.
func (b *Batcher) begin(now time.Time, drained bool) {
	b.first, b.drained, b.came, b.look = now, drained, 0, b.opts.Look
	if b.rush {
		b.look = 0
	}
}

// Queued tells how many pods the scheduler has still to try; none is what [Batcher.Drained] is for.
func (b *Batcher) Queued(n int) { b.queued.Store(int64(n)) }

// Drained tells that the scheduler has nothing left to try right now.
func (b *Batcher) Drained() {
	b.queued.Store(0)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rush = false
	if len(b.pods) > 0 && !b.drained {
		b.drained = true
		b.signal()
	}
}

// Remove takes a pod out of the open batch: it is gone or has found a place.
func (b *Batcher) Remove(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i, ok := b.pods[uid]; ok {
		b.order[i] = nil
		delete(b.pods, uid)
	}
}

// Has reports whether the pod is in the open batch.
func (b *Batcher) Has(uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.pods[uid]
	return ok
}

func (b *Batcher) signal() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// Next waits for a batch to close, or for it to be looked at before. The error is ctx's.
func (b *Batcher) Next(ctx context.Context) (Batch, error) {
	for {
		batch, wait := b.take()
		if len(batch.Pods) > 0 {
			return batch, nil
		}
		var timeout <-chan time.Time
		var timer clock.Timer
		if wait > 0 {
			timer = b.clock.NewTimer(wait)
			timeout = timer.C()
		}
		select {
		case <-ctx.Done():
			return Batch{}, ctx.Err()
		case <-b.changed:
		case <-timeout:
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// take returns the batch if it is closed or due for a look, else how long until it closes by itself (0 for an empty batch).
func (b *Batcher) take() (Batch, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pods) == 0 {
		b.order = nil
		return Batch{}, 0
	}
	now := b.clock.Now()
	wait := b.first.Add(b.opts.MaxAge).Sub(now)
	if b.drained {
		wait = min(wait, b.last.Add(b.opts.Debounce).Sub(now))
	}
	closed := wait <= 0 || len(b.pods) >= b.opts.MaxSize
	if !closed && (b.drained || b.look == 0 || b.came < b.look) {
		return Batch{}, wait
	}
	out := make([]*corev1.Pod, 0, len(b.pods))
	for _, p := range b.order {
		if p != nil {
			out = append(out, p)
		}
	}
	if !closed {
		b.look = 4 * b.came
		return Batch{Pods: out, Open: true, Queued: int(b.queued.Load())}, 0
	}
	clear(b.pods)
	b.order, b.rush = nil, !b.drained
	return Batch{Pods: out}, 0
}
