// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// agenda runs what is due, in order of time and then of entry, on one goroutine:
// with a fake clock one step runs everything up to it in a fixed order.
type agenda struct {
	clock clock.Clock
	wake  chan struct{}

	mu      sync.Mutex
	seq     int
	entries entries
}

type entry struct {
	at  time.Time
	seq int
	run func()
}

func newAgenda(c clock.Clock) *agenda {
	return &agenda{clock: c, wake: make(chan struct{}, 1)}
}

// add enters a function to be run at a time. It must not block.
func (a *agenda) add(at time.Time, run func()) {
	a.mu.Lock()
	a.seq++
	heap.Push(&a.entries, entry{at: at, seq: a.seq, run: run})
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// run works until ctx ends.
func (a *agenda) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait, due := a.next()
		if due != nil {
			due()
			continue
		}
		timer := a.clock.NewTimer(wait)
		// A fake clock may have stepped between next and NewTimer; the timer then
		// counts from the later time, so look again now that it exists.
		if a.due() {
			timer.Stop()
			continue
		}
		select {
		case <-ctx.Done():
		case <-a.wake:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// next takes the first entry if it is due, or returns how long to wait for it.
func (a *agenda) next() (time.Duration, func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.entries) == 0 {
		return time.Hour, nil
	}
	if wait := a.entries[0].at.Sub(a.clock.Now()); wait > 0 {
		return wait, nil
	}
	return 0, heap.Pop(&a.entries).(entry).run
}

func (a *agenda) due() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.entries) > 0 && !a.entries[0].at.After(a.clock.Now())
}

// entries is a heap by time and entry.
type entries []entry

func (e entries) Len() int { return len(e) }
func (e entries) Less(i, j int) bool {
	if e[i].at.Equal(e[j].at) {
		return e[i].seq < e[j].seq
	}
	return e[i].at.Before(e[j].at)
}
func (e entries) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *entries) Push(x any) { *e = append(*e, x.(entry)) }

// Pop implements heap.Interface.
func (e *entries) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}
