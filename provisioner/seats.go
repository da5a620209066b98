// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// A seat is a place on a claim for a pod that its owner has still to create. To views, the judge and the claim it is a pod
// like any other; the ledger gives it to the first pod of the owner that comes and looks the same.

// seat is one seat to be planned: a stand-in for the pod, as the API and as the plan have it.
type seat struct {
	pod   *corev1.Pod
	plan  *capacity.Pod
	owner types.UID
	pool  string // once it has a place
}

// expect notes seats that a plan has found room for, before they are assigned to their claims.
func (l *ledger) expect(seats []seat, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range seats {
		e := &entry{pod: s.pod, offered: now, owner: s.owner, class: s.plan.Class, pool: s.pool}
		l.pods[s.pod.UID] = e
		l.seats[s.owner] = append(l.seats[s.owner], e)
		l.came[s.owner] = now
	}
}

// take gives a waiting pod the oldest seat of its owner that is on a node on its way, or on one that has been usable for
// so short that the pod's scheduling cycle may not have seen it. It returns the claim and its node, if that has a name
// yet. A pod that failed although there is a seat on a node usable for longer proves that this seat is taken; it is dropped.
func (l *ledger) take(pod *corev1.Pod, class *capacity.Class, owner types.UID, now time.Time) (claim, node string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.came[owner] = now
	var taken *entry
	for _, e := range l.seats[owner] {
		if e.class != class || e.claim == "" {
			continue
		}
		if e.usable.IsZero() || now.Sub(e.usable) < bindGrace && !l.intruders[e.claim] {
			claim, node = e.claim, e.node
			l.swap(e, pod)
			return claim, node, true
		}
		if taken == nil {
			taken = e
		}
	}
	if taken != nil {
		l.dropSeat(taken)
	}
	return "", "", false
}

// sit gives up one of the owner's seats on the claim: its pod is there. It reports whether there was one.
func (l *ledger) sit(owner types.UID, claim string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.seats[owner] {
		if e.claim == claim {
			l.fillSeat(e)
			return true
		}
	}
	return false
}

// fillSeat forgets a seat whose pod has come: its room is used, not free.
func (l *ledger) fillSeat(e *entry) {
	lifted := l.lifted
	l.dropSeat(e)
	l.lifted = lifted
}

// swap puts the pod in the seat's place. The claim is never without a pod meanwhile.
func (l *ledger) swap(seat *entry, pod *corev1.Pod) {
	e := l.pods[pod.UID]
	if e == nil {
		return // bound or deleted meanwhile
	}
	e.state, e.claim, e.node, e.usable, e.backoff, e.told = planned, seat.claim, seat.node, time.Time{}, 0, ""
	l.claims[seat.claim][pod.UID] = e
	l.fillSeat(seat)
}

// dropSeat forgets a seat.
func (l *ledger) dropSeat(e *entry) {
	l.unassign(e)
	delete(l.pods, e.pod.UID)
	l.seats[e.owner] = slices.DeleteFunc(l.seats[e.owner], func(o *entry) bool { return o == e })
	if len(l.seats[e.owner]) == 0 {
		delete(l.seats, e.owner)
	}
}

// seated says how many seats an owner has.
func (l *ledger) seated(owner types.UID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seats[owner])
}

// seatsByPool counts the seats on nodes of each pool.
func (l *ledger) seatsByPool() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]int{}
	for _, seats := range l.seats {
		for _, e := range seats {
			out[e.pool]++
		}
	}
	return out
}

// strangers counts the pods that have not been offered.
func (l *ledger) strangers(pods []types.UID) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, uid := range pods {
		if l.pods[uid] == nil {
			n++
		}
	}
	return n
}

// standIn represents the pods an owner has seats for. silent says that none has come for too long.
type standIn struct {
	pod    *corev1.Pod
	silent bool
}

// expecting lists the owners that have seats. Those that have been silent for too long are not trusted for a while.
func (l *ledger) expecting(now time.Time) map[types.UID]standIn {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[types.UID]standIn, len(l.seats))
	for owner, seats := range l.seats {
		out[owner] = standIn{pod: seats[0].pod, silent: now.Sub(l.came[owner]) > patience}
		if out[owner].silent {
			l.barren[owner] = now
		}
	}
	for owner := range l.came {
		if l.seats[owner] == nil {
			delete(l.came, owner)
		}
	}
	for owner, since := range l.barren {
		if now.Sub(since) > distrust {
			delete(l.barren, owner)
		}
	}
	return out
}

// distrusts reports whether the owner has recently let its seats go stale.
func (l *ledger) distrusts(owner types.UID, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, ok := l.barren[owner]
	return ok && now.Sub(since) <= distrust
}

// trim gives up seats of an owner beyond the number, last planned first. Pods among the pending that are not planned yet
// will want a seat and count too.
func (l *ledger) trim(owner types.UID, keep int, pending []types.UID) (dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, uid := range pending {
		if e := l.pods[uid]; e == nil || e.state == waiting {
			keep++
		}
	}
	seats := slices.Clone(l.seats[owner])
	for i := len(seats) - 1; i >= keep; i-- {
		l.dropSeat(seats[i])
		dropped++
	}
	return dropped
}

// cancelAfter is how long a claim may be without pods before it is cancelled: pods that are being replaced, by a rolling
// update or a restart of their owner, come back within it, and so do pods that lost their place on another node (bindGrace).
const cancelAfter = 2 * bindGrace

// unneeded lists the claims that have been without pods for long enough, and forgets them.
func (l *ledger) unneeded(now time.Time) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for claim, since := range l.idle {
		switch {
		case since.IsZero():
			l.idle[claim] = now
		case now.Sub(since) >= cancelAfter:
			delete(l.idle, claim)
			out = append(out, claim)
		}
	}
	slices.Sort(out)
	return out
}

// again has a claim looked at again that could not be cancelled.
func (l *ledger) again(claim string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.claims[claim] == nil {
		l.idle[claim] = time.Time{}
	}
}
