// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// memory is a set of claims, each kept for [pastFor] after it was added.
type memory struct {
	at     map[types.UID]time.Time
	pruned time.Time
}

func (m *memory) has(uid types.UID) bool {
	_, ok := m.at[uid]
	return ok
}

func (m *memory) add(uid types.UID, now time.Time) {
	if now.Sub(m.pruned) > pastFor {
		maps.DeleteFunc(m.at, func(_ types.UID, at time.Time) bool { return now.Sub(at) > pastFor })
		m.pruned = now
	}
	m.at[uid] = now
}
