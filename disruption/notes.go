// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"context"
	"time"

	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

const (
	// notesMost bounds the claims whose status is written in one pass: what is decided does not wait for it.
	notesMost = 200
	// podEventEvery is the least time between two writes of a claim's lastPodEventTime (Karpenter's).
	podEventEvery = 10 * time.Second
)

// note is what a claim's status should say.
type note struct {
	consolidatable bool
	drift          string
	// lastPod is zero if there is nothing new.
	lastPod time.Time
}

// noteOf says what follows from the snapshot for the claim; same is true if its status says it already. Conditions of a claim that
// is going are left as they are.
func (c *Controller) noteOf(s *Snapshot, n *Node) (out note, same bool) {
	if n.Leaving() || n.Pool == nil {
		return out, true
	}
	last := c.memory.lastPod(n)
	at, ok := consolidatableAt(n, last)
	out.consolidatable = ok && !s.Now.Before(at)
	out.drift = s.Drift(n)
	after := n.Pool.Spec.Disruption.ConsolidateAfter.Duration
	if after != nil && *after > 0 && last.Sub(n.Claim.Status.LastPodEventTime.Time) >= podEventEvery {
		out.lastPod = last
	}
	_, is := n.condition(karpv1.ConditionTypeConsolidatable)
	drifted := ""
	for i := range n.Claim.Status.Conditions {
		if cond := &n.Claim.Status.Conditions[i]; cond.Type == karpv1.ConditionTypeDrifted && cond.IsTrue() {
			drifted = cond.Reason
		}
	}
	return out, is == out.consolidatable && drifted == out.drift && out.lastPod.IsZero()
}

// note writes conditions Consolidatable and Drifted, and lastPodEventTime where the pool waits for pods to settle.
func (c *Controller) note(ctx context.Context, s *Snapshot) {
	type todo struct {
		n    *Node
		note note
	}
	var todos []todo
	for _, n := range s.Nodes {
		if want, same := c.noteOf(s, n); !same && len(todos) < notesMost {
			todos = append(todos, todo{n, want})
		}
	}
	each(todos, func(t todo) {
		err := c.updateStatus(ctx, t.n.Claim.Name, func(claim *karpv1.NodeClaim) bool { return t.note.apply(claim, c.Clock) })
		if client.IgnoreNotFound(err) != nil {
			log.FromContext(ctx).Error(err, "noting what can be done with a node", "nodeClaim", t.n.Claim.Name)
		}
	})
	if len(todos) == notesMost {
		c.Changed()
	}
}

// apply changes the claim and reports whether that was needed.
func (t note) apply(claim *karpv1.NodeClaim, now clock.Clock) bool {
	conditions := claim.StatusConditions(status.WithClock(now))
	changed := false
	set := func(kind, reason string) {
		if reason == "" {
			if conditions.Get(kind) != nil {
				changed = conditions.Clear(kind) == nil || changed
			}
			return
		}
		changed = conditions.SetTrueWithReason(kind, reason, reason) || changed
	}
	reason := ""
	if t.consolidatable {
		reason = karpv1.ConditionTypeConsolidatable
	}
	set(karpv1.ConditionTypeConsolidatable, reason)
	set(karpv1.ConditionTypeDrifted, t.drift)
	if t.lastPod.After(claim.Status.LastPodEventTime.Time) {
		claim.Status.LastPodEventTime = metav1.NewTime(t.lastPod)
		changed = true
	}
	return changed
}
