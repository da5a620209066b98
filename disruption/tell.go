// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// How long the same event is not repeated (Karpenter's).
const (
	tellAgain              = 2 * time.Minute
	tellUnconsolidatable   = 15 * time.Minute
	tellPool               = time.Minute
	toldMost               = 50000 // events remembered
	unreadableBudgetReason = "InvalidBudget"
)

// teller writes events, the same one not again for a while.
type teller struct {
	events Events
	clock  clock.PassiveClock

	mu   sync.Mutex
	told map[string]time.Time // until when
}

func newTeller(events Events, c clock.PassiveClock) *teller {
	return &teller{events: events, clock: c, told: map[string]time.Time{}}
}

func (t *teller) news(key string, pause time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if now.Before(t.told[key]) {
		return false
	}
	if len(t.told) > toldMost {
		for k, until := range t.told {
			if !now.Before(until) {
				delete(t.told, k)
			}
		}
	}
	t.told[key] = now.Add(pause)
	return true
}

func (t *teller) tell(o client.Object, pause time.Duration, e event) {
	if t.news(string(o.GetUID())+o.GetName()+e.reason+e.note, pause) {
		t.events.Eventf(o, nil, e.kind, e.reason, e.action, "%s", e.note)
	}
}

type event struct{ kind, reason, action, note string }

// node writes an event on a node and its claim. For DisruptionTerminating, note is the reason of the disruption.
func (t *teller) node(n *Node, reason, action, note string) {
	pause := tellAgain
	if reason == eventUnconsolidatable {
		pause = tellUnconsolidatable
	}
	onNode, onClaim := note, note
	if reason == "DisruptionTerminating" {
		onNode, onClaim = "Disrupting Node: "+note, "Disrupting NodeClaim: "+note
	}
	if n.Node != nil {
		t.tell(n.Node, pause, event{corev1.EventTypeNormal, reason, action, onNode})
	}
	t.tell(n.Claim, pause, event{corev1.EventTypeNormal, reason, action, onClaim})
}

func (t *teller) claim(c *karpv1.NodeClaim, reason, action, note string) {
	t.tell(c, tellAgain, event{corev1.EventTypeNormal, reason, action, note})
}

// tell writes the events of a decision: why nodes stay, and which pools' budgets allow nothing.
func (c *Controller) tell(s *Snapshot, d *Decision) {
	for _, r := range d.Rejections {
		if r.Event != "" && r.Message != "" {
			c.teller.node(r.Node, r.Event, "Disrupt", r.Message)
		}
	}
	for name, q := range d.Quotas {
		p := s.Pools[name]
		if q.Err != nil {
			c.teller.tell(p.NodePool, tellPool, event{corev1.EventTypeWarning, unreadableBudgetReason, "Disrupt", q.Err.Error()})
		}
		for _, why := range neverComing(p.NodePool, s.Now) {
			c.teller.tell(p.NodePool, tellUnconsolidatable, event{corev1.EventTypeWarning, unreadableBudgetReason, "Disrupt", why})
		}
		for _, r := range reasons() {
			if q.Nodes > 0 && q.Allowed[r] == 0 && r != ReasonUnhealthy && r != ReasonExpired {
				note := stayBudget(r)
				c.teller.tell(p.NodePool, tellPool, event{corev1.EventTypeNormal, eventBlocked, "Disrupt", note})
			}
		}
	}
	for _, np := range s.yielded {
		c.teller.tell(np, tellPool, event{corev1.EventTypeNormal, eventBlocked, "Disrupt", "NodePool's class belongs to somebody else: " + c.rival})
	}
	for _, cmd := range d.Commands {
		if cmd.Kind == "" {
			continue
		}
		for _, n := range cmd.Going {
			c.teller.node(n, "ConsolidationCandidate", "Consolidate", fmt.Sprintf("Consolidation candidate: %s (savings: $%.2f)", cmd.Decision(), cmd.Saving))
		}
	}
}
