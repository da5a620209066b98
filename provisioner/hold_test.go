// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/test/builder"
)

// Whoever takes nodes away has to know of a pod that is between two plans: its claim does not await it any more, nothing else has
// it yet, and its node is there.
func TestWaits(t *testing.T) {
	p := &Provisioner{ledger: newLedger()}
	pod, now := builder.Pod("app").UID("uid-app").Obj(), builder.Epoch()
	expect := func(when string, waits, known, awaited bool) {
		t.Helper()
		w, k := p.Waits(pod.UID)
		if a := p.Awaited("claim"); w != waits || k != known || a != awaited {
			t.Errorf("%s: it waits %v, is known %v, its claim is awaited %v; want %v, %v, %v", when, w, k, a, waits, known, awaited)
		}
	}
	expect("before it has failed", false, false, false)
	p.ledger.offer(pod, now, nil)
	expect("when it has failed", true, true, false)
	p.ledger.assign("claim", "", []*corev1.Pod{pod})
	expect("when it was planned", false, true, true)
	p.ledger.usable("claim", "node", everybody, now)
	p.ledger.offer(pod, now.Add(bindGrace-time.Millisecond), nil)
	expect("when it has just failed to get to its node", false, true, true)
	p.ledger.offer(pod, now.Add(bindGrace), nil)
	expect("when it is planned again", true, true, false)
	p.ledger.assign("claim", "node", []*corev1.Pod{pod})
	expect("when it was planned on the same node", false, true, true)
	p.ledger.remove(pod.UID, "node")
	expect("when it is there", false, false, false)
}
