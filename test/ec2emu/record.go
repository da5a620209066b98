// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"context"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Request is one request the emulator answered, or is still answering.
type Request struct {
	// ID is the request id in the answer.
	ID string
	// Service and Action are such as "ec2" and "CreateFleet".
	Service, Action string
	// At is when the first byte arrived; Took is zero until it is answered.
	At   time.Time
	Took time.Duration
	// Form has the decoded parameters of the query protocols; Body is the JSON
	// text of the others.
	Form url.Values
	Body string
	// Code is empty for a success, AWS's error code otherwise, or "Cut" when the
	// connection was cut. Status is HTTP's.
	Code   string
	Status int
	// Instances are those the request launched or terminated.
	Instances []string
}

// EventType says what happened to an instance.
type EventType string

// Types of Events, in the order of an instance's life.
const (
	Launched     EventType = "Launched"     // EC2 took the request, state pending
	Running      EventType = "Running"      // state running
	Joined       EventType = "Joined"       // the kubelet registered its Node
	NotJoined    EventType = "NotJoined"    // it never will, or not yet: see Reason
	ShuttingDown EventType = "ShuttingDown" // TerminateInstances was accepted, or EC2 took it back
	Terminated   EventType = "Terminated"   // state terminated
	Stopping     EventType = "Stopping"     // state stopping
	Stopped      EventType = "Stopped"      // state stopped
)

// Types of Events that announce something: their message is on the queue.
const (
	SpotNotice        EventType = "SpotNotice"        // EC2 takes a spot instance back in two minutes
	ReservationNotice EventType = "ReservationNotice" // EC2 takes reserved capacity back in two minutes
	RebalanceNotice   EventType = "RebalanceNotice"   // EC2 advises to replace it
	HealthNotice      EventType = "HealthNotice"      // maintenance is scheduled: see Reason
	Impaired          EventType = "Impaired"          // its status checks changed: see Reason
)

// Event is something that happened to an instance.
type Event struct {
	At                   time.Time
	Type                 EventType
	InstanceID, NodeName string
	InstanceType, Zone   string
	// Reason says why a machine did not join or is shut down, and what is announced.
	Reason string
}

// recorder keeps what happened. Readers never hold up writers.
type recorder struct {
	limit int

	mu       sync.Mutex
	requests []*Request
	events   []Event
	changed  chan struct{} // closed and replaced with each event
}

func newRecorder(limit int) *recorder {
	return &recorder{limit: limit, changed: make(chan struct{})}
}

func (r *recorder) begin(req *Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, req)
	// Dropping half at a time keeps the cost of forgetting constant a request.
	if len(r.requests) > 2*r.limit {
		r.requests = slices.Clone(r.requests[r.limit:])
	}
}

func (r *recorder) update(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn()
}

func (r *recorder) event(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	close(r.changed)
	r.changed = make(chan struct{})
}

// after returns the events from index n on and a channel that closes with the next.
func (r *recorder) after(n int) ([]Event, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events[n:]), r.changed
}

// Requests returns the requests so far in the order of their arrival.
func (e *Emulator) Requests() []Request {
	e.rec.mu.Lock()
	defer e.rec.mu.Unlock()
	from := max(0, len(e.rec.requests)-e.rec.limit)
	out := make([]Request, 0, len(e.rec.requests)-from)
	for _, r := range e.rec.requests[from:] {
		out = append(out, *r)
	}
	return out
}

// Events returns what happened to instances so far.
func (e *Emulator) Events() []Event {
	events, _ := e.rec.after(0)
	return events
}

// Subscribe delivers every event from the emulator's start on, in order and
// without loss, until ctx ends or the emulator closes; then the channel closes.
func (e *Emulator) Subscribe(ctx context.Context) <-chan Event {
	ch := make(chan Event)
	go func() {
		defer close(ch)
		for n := 0; ; {
			events, changed := e.rec.after(n)
			for _, event := range events {
				select {
				case ch <- event:
				case <-ctx.Done():
					return
				case <-e.ctx.Done():
					return
				}
			}
			n += len(events)
			if len(events) > 0 {
				continue
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			case <-e.ctx.Done():
				return
			}
		}
	}()
	return ch
}
