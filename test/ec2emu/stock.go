// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import "slices"

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

// SetPartialFleets makes this share of fleets for more than one instance, 0..1,
// launch fewer than they ask for: between one and one less, drawn from the seed,
// with InsufficientInstanceCapacity for the pools they were tried in. An instance
// type may still be had by the next request.
func (e *Emulator) SetPartialFleets(share float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.partialFleets = share
}

// fleetLimit is how many of want instances a fleet gets at most. e.mu is held.
func (e *Emulator) fleetLimit(c *call, want int) int {
	if want < 2 || e.partialFleets == 0 {
		return want
	}
	r := e.rand.draw("partial", c.id)
	if r.Float64() >= e.partialFleets {
		return want
	}
	return 1 + r.IntN(want-1)
}
