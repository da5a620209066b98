// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

const (
	// slotsEvery is how often reservations are asked how much room they have (Karpenter's interval).
	slotsEvery = time.Minute
	// slotsSettle is how long a launch may take to show in EC2's count of a reservation.
	slotsSettle = 15 * time.Second
)

// ReservationSource says how much room reservations have; [Client] is one.
type ReservationSource interface {
	ReservationsByID(ctx context.Context, ids []string) ([]Reservation, error)
}

// Slots counts the free places of capacity reservations between EC2's reports:
// what is launched is subtracted at once and stays so until a report that must
// include it, so that a burst never asks for more than there is. Reservations
// without a free place are out of stock in [Shortages]. Safe for concurrent use; no
// lock is held during a call.
type Slots struct {
	source    ReservationSource
	shortages *Shortages
	clock     clock.Clock

	mu    sync.Mutex
	known map[string]*slots
}

type slots struct {
	reported int32
	// taken are the instants at which places were taken that the report may not include yet.
	taken []time.Time
}

func (s *slots) free() int32 { return max(s.reported-int32(len(s.taken)), 0) }

// NewSlots returns an empty memory: nothing is known of any reservation until it is asked about.
func NewSlots(source ReservationSource, s *Shortages, c clock.Clock) *Slots {
	return &Slots{source: source, shortages: s, clock: c, known: map[string]*slots{}}
}

// Run refreshes the reservations that ids lists, every minute until ctx ends. A refresh that fails is logged; the counts
// before it stay in use.
func (s *Slots) Run(ctx context.Context, ids func() []string) {
	for {
		if err := s.Refresh(ctx, ids()); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "cannot refresh the room of capacity reservations", "retryIn", slotsEvery)
		}
		timer := s.clock.NewTimer(slotsEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

// Refresh asks EC2 about the reservations and forgets all others.
func (s *Slots) Refresh(ctx context.Context, ids []string) error {
	asked := s.clock.Now()
	var answer []Reservation
	if len(ids) > 0 {
		var err error
		if answer, err = s.source.ReservationsByID(ctx, ids); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := make(map[string]*slots, len(ids))
	for _, id := range ids {
		fresh[id] = &slots{} // gone or over: no place
	}
	for _, r := range answer {
		n := &slots{reported: r.Free}
		if old := s.known[r.ID]; old != nil {
			n.taken = slices.DeleteFunc(old.taken, func(at time.Time) bool { return asked.Sub(at) >= slotsSettle })
		}
		fresh[r.ID] = n
	}
	s.known = fresh
	s.publish()
	return nil
}

// Free returns how many instances can be launched into the reservation, 0 if nothing is known of it.
func (s *Slots) Free(id string) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.known[id]; n != nil {
		return n.free()
	}
	return 0
}

// Take books up to n places of the reservation and returns how many there were.
func (s *Slots) Take(id string, n int32) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.known[id]
	if k == nil {
		return 0
	}
	n = min(n, k.free())
	now := s.clock.Now()
	for range n {
		k.taken = append(k.taken, now)
	}
	s.publish()
	return n
}

// Return gives back n places that were taken and not used, the latest first.
func (s *Slots) Return(id string, n int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.known[id]; k != nil {
		k.taken = k.taken[:max(len(k.taken)-int(n), 0)]
	}
	s.publish()
}

// Exhausted records that EC2 found the reservation full, until the next report.
func (s *Slots) Exhausted(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.known[id]; k != nil {
		k.reported, k.taken = 0, nil
	}
	s.publish()
}

// publish tells Shortages which reservations have no free place. The lock is held.
func (s *Slots) publish() {
	full := make(map[string]bool, len(s.known))
	for id, n := range s.known {
		full[id] = n.free() == 0
	}
	s.shortages.setReservations(full)
}
