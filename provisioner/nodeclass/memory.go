// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// memory is when the parts of each class were last resolved, so that a class is not asked about more often than its
// facts change. A restart forgets it, which costs one round of calls. The zero value is empty.
type memory struct {
	mu    sync.Mutex
	parts map[types.UID]map[string]moment
}

type moment struct {
	generation int64
	at         time.Time
}

// fresh reports whether the part was resolved for this generation within the time.
func (m *memory) fresh(uid types.UID, part string, now moment, within time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, ok := m.parts[uid][part]
	return ok && last.generation == now.generation && now.at.Sub(last.at) < within
}

func (m *memory) done(uid types.UID, part string, now moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.parts == nil {
		m.parts = map[types.UID]map[string]moment{}
	}
	if m.parts[uid] == nil {
		m.parts[uid] = map[string]moment{}
	}
	m.parts[uid][part] = now
}

func (m *memory) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.parts, uid)
}

// permits remembers until when an answer is taken. The zero value is empty.
type permits struct {
	mu   sync.Mutex
	held map[types.UID]permit
}

type permit struct {
	asked string
	until time.Time
}

// fresh reports whether the same has been asked about the class and the answer is still taken.
func (p *permits) fresh(uid types.UID, asked string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, ok := p.held[uid]
	return ok && h.asked == asked && now.Before(h.until)
}

func (p *permits) until(uid types.UID, asked string, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = map[types.UID]permit{}
	}
	p.held[uid] = permit{asked: asked, until: at}
}

func (p *permits) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held, uid)
}
