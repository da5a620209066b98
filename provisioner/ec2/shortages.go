// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

const (
	// shortageFirst is how long an offering is left alone after EC2 was out of it; each time it is tried again and EC2 is
	// still out, the time doubles, up to shortageMost.
	shortageFirst = 3 * time.Minute
	shortageMost  = 30 * time.Minute
	// shortageQuiet is how long an offering has to be free of reports for its time-out to halve.
	shortageQuiet = 10 * time.Minute
	// shortageSets is how many catalogues' sets are kept; more than there are node classes in use.
	shortageSets = 64
)

// Shortages remembers which offerings EC2 is out of, each for a time of its own
// that grows while EC2 stays out of it and decays when it does not. Nothing is
// ever held back but the offering itself. Safe for concurrent use.
type Shortages struct {
	clock clock.PassiveClock

	version atomic.Uint64
	// returned counts how often time-outs have ended.
	returned atomic.Uint64
	// nextChange is the Unix nanosecond at which the first time-out ends.
	nextChange atomic.Int64

	mu   sync.Mutex
	out  map[capacity.OfferingKey]shortage
	sets map[*capacity.Catalog]availableSet
	// reservations says of each reservation that is known whether it is full.
	reservations map[string]bool
}

type shortage struct {
	until   time.Time
	timeout time.Duration
	ended   bool // the time-out is over; kept for as long as its length still matters
}

type availableSet struct {
	version uint64
	set     capacity.Set
}

const never = int64(^uint64(0) >> 1)

// NewShortages returns an empty memory.
func NewShortages(c clock.PassiveClock) *Shortages {
	s := &Shortages{clock: c, out: map[capacity.OfferingKey]shortage{}, sets: map[*capacity.Catalog]availableSet{}}
	s.nextChange.Store(never)
	return s
}

// Mark records that EC2 is out of the offerings. Reports about an offering that is being left alone already (other
// launches under way when it ran out) do not prolong its time-out.
func (s *Shortages) Mark(keys ...capacity.OfferingKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	s.sweep(now)
	changed := false
	for _, k := range keys {
		e, known := s.out[k]
		if known && !e.ended {
			continue
		}
		timeout := shortageFirst
		if known {
			if d := decayed(e, now); d >= shortageFirst {
				timeout = min(2*d, shortageMost)
			}
		}
		s.out[k] = shortage{until: now.Add(timeout), timeout: timeout}
		changed = true
	}
	if changed {
		s.changed()
	}
}

// decayed is the time-out after the quiet time since it ended: halved once each shortageQuiet.
func decayed(e shortage, now time.Time) time.Duration {
	return e.timeout >> min(uint(now.Sub(e.until)/shortageQuiet), 62)
}

// Out reports whether the offering is being left alone.
func (s *Shortages) Out(k capacity.OfferingKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isOut(k, s.clock.Now())
}

// isOut is Out for a moment. The lock is held. A reservation of which nothing is known yet has no place.
func (s *Shortages) isOut(k capacity.OfferingKey, now time.Time) bool {
	if full, known := s.reservations[k.ReservationID]; k.ReservationID != "" && (full || !known) {
		return true
	}
	e, ok := s.out[k]
	return ok && now.Before(e.until)
}

// setReservations says of every reservation that is in use whether it is full.
func (s *Shortages) setReservations(full map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if maps.Equal(s.reservations, full) {
		return
	}
	s.reservations = full
	s.changed()
}

// Version changes whenever what Out answers changes, so that readers know when to look again.
func (s *Shortages) Version() uint64 {
	if s.clock.Now().UnixNano() >= s.nextChange.Load() {
		s.mu.Lock()
		s.sweep(s.clock.Now())
		s.mu.Unlock()
	}
	return s.version.Load()
}

// Available returns the catalogue's offerings EC2 is not known to be out of. The
// set is computed once a version and catalogue and must not be modified.
func (s *Shortages) Available(c *capacity.Catalog) capacity.Set {
	v := s.Version()
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.sets[c]; ok && a.version == v {
		return a.set
	}
	if len(s.sets) >= shortageSets {
		clear(s.sets)
	}
	now := s.clock.Now()
	set := c.Without(func(k capacity.OfferingKey) bool { return s.isOut(k, now) })
	s.sets[c] = availableSet{version: v, set: set}
	return set
}

// sweep ends time-outs that are over and forgets those too old to matter. The lock is held.
func (s *Shortages) sweep(now time.Time) {
	changed := false
	for k, e := range s.out {
		switch {
		case e.ended && decayed(e, now) < shortageFirst:
			delete(s.out, k)
		case !e.ended && !now.Before(e.until):
			e.ended = true
			s.out[k] = e
			changed = true
		}
	}
	if changed {
		s.returned.Add(1)
		s.changed()
	}
}

// Returned grows whenever offerings that were left alone may be tried again, which pods without a place wait for.
func (s *Shortages) Returned() uint64 {
	s.Version()
	return s.returned.Load()
}

// changed publishes a new version. The lock is held.
func (s *Shortages) changed() {
	next := never
	for _, e := range s.out {
		if !e.ended {
			next = min(next, e.until.UnixNano())
		}
	}
	s.nextChange.Store(next)
	clear(s.sets)
	s.version.Add(1)
}
