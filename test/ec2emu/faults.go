// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// Fault is an error answered instead of an action's own answer.
type Fault struct {
	// Action is such as "CreateFleet"; "*" is every action.
	Action string
	// Code and Message are AWS's. Without Code only Delay and Cut take effect.
	Code, Message string
	// Status is HTTP's, by default what AWS uses with Code, else 400.
	Status int
	// Count is how many requests it hits; 0 means all until ClearFaults.
	Count int
	// AfterEffect lets the action happen first: its answer is lost, not its effect.
	AfterEffect bool
	// Delay holds the answer back, for time-outs. It ends when the client leaves.
	Delay time.Duration
	// Cut closes the connection instead of answering.
	Cut bool
}

// Inject adds a fault. Of several that match, the first added is used.
func (e *Emulator) Inject(f Fault) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f.Status == 0 {
		f.Status = defaultStatus(f.Code)
	}
	e.faults = append(e.faults, &activeFault{Fault: f, left: f.Count})
}

// ClearFaults removes all faults.
func (e *Emulator) ClearFaults() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = nil
}

func defaultStatus(code string) int {
	switch code {
	case "RequestLimitExceeded", "Unavailable", "ServiceUnavailable":
		return http.StatusServiceUnavailable
	case "InternalError", "InternalFailure":
		return http.StatusInternalServerError
	case "UnauthorizedOperation", "AccessDenied", "AuthFailure":
		return http.StatusForbidden
	default:
		return http.StatusBadRequest
	}
}

type activeFault struct {
	Fault
	left int
}

// takeFault returns the fault that hits this request, or nil. e.mu is held.
func (e *Emulator) takeFault(action string) *Fault {
	for i, f := range e.faults {
		if f.Action != "*" && f.Action != action {
			continue
		}
		if f.Count > 0 {
			if f.left--; f.left == 0 {
				e.faults = slices.Delete(e.faults, i, i+1)
			}
		}
		fault := f.Fault
		return &fault
	}
	return nil
}

func (f *Fault) err() error {
	if f.Code == "" {
		return nil
	}
	return &apiError{code: f.Code, message: f.Message, status: f.Status}
}

// HookAction is what a Hook wants done with the answer.
type HookAction int

const (
	// Answer sends the answer.
	Answer HookAction = iota
	// Cut closes the connection: the effect happened, the client can't know.
	Cut
)

// Hook is called after a request's effect and before its answer, from the
// request's goroutine, without any lock: it may block, and may call the emulator.
type Hook func(Request) HookAction

// SetHook replaces the hook; nil removes it.
func (e *Emulator) SetHook(h Hook) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hook = h
}

// Pool is a set of offerings: an empty field or "*" means all.
type Pool struct {
	InstanceType, Zone string
	// CapacityType is on-demand or spot.
	CapacityType string
}

func (p Pool) matches(o Pool) bool {
	return wild(p.InstanceType, o.InstanceType) && wild(p.Zone, o.Zone) && wild(p.CapacityType, o.CapacityType)
}

func wild(pattern, value string) bool {
	return pattern == "" || matchPattern(pattern, value)
}

// stock bounds how many instances a pool still has.
type stock struct {
	pool Pool
	left int
}

// SetStock says that all offerings of pool together have only n instances left;
// further launches meet InsufficientInstanceCapacity. 0 is a stock-out, a
// negative n removes the bound. Fields may hold the wildcards * and ?.
func (e *Emulator) SetStock(pool Pool, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stocks = slices.DeleteFunc(e.stocks, func(s *stock) bool { return s.pool == pool })
	if n >= 0 {
		e.stocks = append(e.stocks, &stock{pool: pool, left: n})
	}
}

// available returns how many instances an offering has, at most want.
func (e *Emulator) available(offering Pool, want int) int {
	for _, s := range e.stocks {
		if s.pool.matches(offering) {
			want = min(want, s.left)
		}
	}
	return want
}

func (e *Emulator) takeStock(offering Pool, n int) {
	for _, s := range e.stocks {
		if s.pool.matches(offering) {
			s.left -= n
		}
	}
}

// bucket is one of EC2's request token buckets: refill a second, burst.
type bucket struct {
	refill, burst, tokens float64
	last                  time.Time
}

func (b *bucket) take(now time.Time) bool {
	if b.last.IsZero() {
		b.tokens = b.burst
	} else {
		b.tokens = min(b.burst, b.tokens+now.Sub(b.last).Seconds()*b.refill)
	}
	b.last = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// newBuckets are the buckets of an account: non-mutating actions share one, and
// so do mutating ones but for those named.
func newBuckets() map[string]*bucket {
	return map[string]*bucket{
		"describe":           {refill: 20, burst: 100},
		"mutate":             {refill: 5, burst: 50},
		"RunInstances":       {refill: 2, burst: 5},
		"TerminateInstances": {refill: 5, burst: 100},
		"CreateTags":         {refill: 10, burst: 100},
	}
}

// throttled takes a token for an EC2 action. e.mu is held.
func (e *Emulator) throttled(action string) bool {
	b := e.buckets[action]
	if b == nil {
		b = e.buckets["mutate"]
		if strings.HasPrefix(action, "Describe") || strings.HasPrefix(action, "Get") {
			b = e.buckets["describe"]
		}
	}
	return !b.take(e.clock.Now())
}
