// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"time"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// SetConsistencyLag makes reads eventually consistent: what is created or tagged
// from now on is seen by later requests only after a time drawn between zero and
// lag. Until then an instance or a launch template that was just made does not
// exist for anybody who asks for it, EC2 does not know a new instance profile,
// and instances show the tags they had. Zero makes reads consistent again.
func (e *Emulator) SetConsistencyLag(lag time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.world.lag = lag
	if lag == 0 {
		clear(e.world.hidden)
		clear(e.world.oldTags)
	}
}

// oldTags are the tags that a resource still shows.
type oldTags struct {
	tags  []ec2types.Tag
	until time.Time
}

// hide lets a new thing be unknown for a while.
func (w *world) hide(id string) {
	if w.lag > 0 {
		w.hidden[id] = w.visibleAt(id)
	}
}

func (w *world) visibleAt(id string) time.Time {
	share := w.rand.draw("lag", id).Float64()
	return w.clock.Now().Add(time.Duration(share * float64(w.lag)))
}

// seen says that reads know a thing by now.
func (w *world) seen(id string) bool {
	at, hidden := w.hidden[id]
	if !hidden {
		return true
	}
	if w.clock.Now().Before(at) {
		return false
	}
	delete(w.hidden, id)
	return true
}

// retag replaces an instance's tags; reads may show the old ones for a while.
func (w *world) retag(id string, tags []ec2types.Tag) {
	if w.lag > 0 {
		w.oldTags[id] = oldTags{tags: w.shownTags(id), until: w.visibleAt(id)}
	}
	w.tags[id] = tags
}

// shownTags are the tags that reads show.
func (w *world) shownTags(id string) []ec2types.Tag {
	old, ok := w.oldTags[id]
	if !ok {
		return w.tags[id]
	}
	if w.clock.Now().Before(old.until) {
		return old.tags
	}
	delete(w.oldTags, id)
	return w.tags[id]
}
