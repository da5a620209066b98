// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// Fault is an error answered instead of an action's own answer.
type Fault struct {
	// Action is such as "CreateFleet"; "*" is every action.
	Action string
	// Parameters narrow it to requests that have each of these with a value that
	// matches, wildcards * and ? included: {"DryRun": "true"}. They are those of the
	// query protocols, as in Request.Form.
	Parameters map[string]string
	// Code and Message are AWS's. Without Code only Delay and Cut take effect.
	Code, Message string
	// Status is HTTP's, by default what AWS uses with Code, else 400.
	Status int
	// Count is how many requests it hits; 0 means all until ClearFaults.
	Count int
	// Rate is the share of requests it hits, 0..1, drawn from the seed; 0 means all.
	Rate float64
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

// hits says whether a fault is for this request.
func (f *activeFault) hits(c *call, r seeded, nth int) bool {
	if f.Action != "*" && f.Action != c.action {
		return false
	}
	for name, pattern := range f.Parameters {
		if !c.form.Has(name) || !matchPattern(pattern, c.form.Get(name)) {
			return false
		}
	}
	return f.Rate == 0 || r.draw("fault", strconv.Itoa(nth), c.id).Float64() < f.Rate
}

// takeFault returns the fault that hits this request, or nil. e.mu is held.
func (e *Emulator) takeFault(c *call) *Fault {
	for i, f := range e.faults {
		if !f.hits(c, e.rand, i) {
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

// CrashAfter returns a Hook that calls crash after the effect of the nth request
// of an action, counted from 1, and before its answer, which is then cut: what a
// client meets that dies, or loses its connection, between the two.
func CrashAfter(action string, nth int, crash func()) Hook {
	var seen atomic.Int64
	return func(r Request) HookAction {
		if r.Action != action || seen.Add(1) != int64(nth) {
			return Answer
		}
		crash()
		return Cut
	}
}
