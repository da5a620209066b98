// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"fmt"
	"time"
)

// Latency is how long an action takes to answer: quantiles between which it is
// drawn from the seed, lognormal on either side of the median.
type Latency struct{ P10, P50, P90, P99 time.Duration }

// SetLatency sets the latency of an action, "*" for all that have none of their
// own; it replaces what Options.LaunchLatency says. The zero Latency removes it.
// The effect comes first, then the wait. The error says that the quantiles are
// not positive and rising.
func (e *Emulator) SetLatency(action string, l Latency) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l == (Latency{}) {
		delete(e.latencies, action)
		return nil
	}
	if l.P10 <= 0 || l.P50 < l.P10 || l.P90 < l.P50 || l.P99 < l.P90 {
		return fmt.Errorf("setting latency of %q: quantiles %v, %v, %v, %v must be positive and not fall", action, l.P10, l.P50, l.P90, l.P99)
	}
	e.latencies[action] = quantiles{l.P10.Seconds(), l.P50.Seconds(), l.P90.Seconds(), l.P99.Seconds()}
	return nil
}

// slow draws the latency that was set for a call. e.mu is held.
func (e *Emulator) slow(c *call) {
	q, ok := e.latencies[c.action]
	if !ok {
		if q, ok = e.latencies["*"]; !ok {
			return
		}
	}
	c.latency = scaled(q.at(e.rand.draw("latency", c.id).NormFloat64()), 1)
}
