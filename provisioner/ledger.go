// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// state is where a pod stands on its way to a node.
type state int

const (
	// waiting: in the open batch, or being planned.
	waiting state = iota
	// planned: a claim was bought for it.
	planned
	// unplaced: no node could hold it; tried again when something changes.
	unplaced
)

// entry is what is known about one pod.
type entry struct {
	pod     *corev1.Pod
	state   state
	offered time.Time // when it first failed to schedule
	claim   string    // planned: the claim bought for it
	node    string    // planned: the claim's node name, "" until known
	usable  time.Time // planned: when the node became usable
	failed  bool      // planned, of another scheduler: it was tried since and did not fit
	retryAt time.Time // unplaced
	backoff time.Duration
	told    string // the last reason an event was written for
	// spurned is how often the pod was refused by a node of its own: one that was bought for it, was usable, and had its room.
	spurned int
	// loose: waiting, or planned since, without being parked: it was refused and is planned again of our own accord.
	loose bool
	// owner is set for a seat: the place of a pod that its owner has still to create.
	owner types.UID
	class *capacity.Class // of a seat
	pool  string          // of a seat
	group *group          // nil for a pod that is of use by itself
}

// How long an unplaced pod waits before it is planned again without any change that could matter; doubles each time.
const (
	firstRetry = 10 * time.Second
	lastRetry  = 5 * time.Minute
	// bindGrace is how long a pod whose node is usable may fail to bind to it (topology rules that need another pod
	// first, a foreign pod that is leaving) before it counts as new demand.
	bindGrace = 10 * time.Second
	// spurnedFirst and spurnedLast are how long a pod waits that was refused by a second node of its own, and by ever more;
	// it doubles. Whatever keeps it off is not known to the plan, and would keep it off the next node too.
	spurnedFirst = 10 * time.Minute
	spurnedLast  = 4 * time.Hour
)

// ledger knows every pod that waits for capacity. Safe for concurrent use; no method does more than map work.
type ledger struct {
	mu     sync.Mutex
	pods   map[types.UID]*entry
	claims map[string]map[types.UID]*entry
	// seats are the seats of each owner, in the order they were planned.
	seats map[types.UID][]*entry
	// came is when a pod of an owner with seats last came, barren when an owner's seats were given up because none did.
	came, barren map[types.UID]time.Time
	// intruders are the claims on whose node a pod has landed that was not planned there.
	intruders map[string]bool
	// idle are claims that have lost all their pods, with when that was seen; see unneeded.
	idle map[string]time.Time
	// lists are the pods of each claim as they were last asked for; a claim whose pods have changed since is not in it.
	// Every plan asks for all of them while pods are being offered.
	lists map[string][]*corev1.Pod
	// joined is the Node of each claim that has one in the cluster. awaited are the claims among them that pods wait for, by
	// node; kept are those nodes.
	joined, awaited map[string]string
	kept            atomic.Pointer[sets.Set[string]]
	// groups are the pod groups with members here.
	groups map[types.NamespacedName]*group
	// lifted are the nodes that have joined on which room was kept for a pod and is not any more.
	lifted []string
	// refusers are the nodes that have refused pods they were bought for, until that has been told; see refused.
	refusers map[types.UID]string
}

func newLedger() *ledger {
	l := &ledger{
		pods: map[types.UID]*entry{}, claims: map[string]map[types.UID]*entry{}, lists: map[string][]*corev1.Pod{},
		seats: map[types.UID][]*entry{}, came: map[types.UID]time.Time{}, barren: map[types.UID]time.Time{}, idle: map[string]time.Time{},
		groups: map[types.NamespacedName]*group{}, intruders: map[string]bool{}, joined: map[string]string{}, awaited: map[string]string{},
		refusers: map[types.UID]string{},
	}
	l.keep()
	return l
}

// offer notes that the pod failed to schedule. fresh asks the caller to put it into the batch; parked says that the pod
// waits for capacity, node is the node reserved for it. taken, if not nil, tells nodes whose room others have.
func (l *ledger) offer(pod *corev1.Pod, now time.Time, taken func(node string) bool) (parked bool, node string, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.pods[pod.UID]
	if e == nil {
		l.pods[pod.UID] = &entry{pod: pod, offered: now}
		return true, "", true
	}
	e.pod = pod
	if e.group != nil && !e.group.known() {
		l.leaveGroup(e, "") // it failed alone: nothing keeps its group together
	}
	defer func() { e.loose = !parked }()
	switch e.state {
	case planned:
		if e.usable.IsZero() {
			return true, e.node, false
		}
		mine := !l.intruders[e.claim] && (taken == nil || !taken(e.node)) // the pod's room is still there
		if mine && now.Sub(e.usable) < bindGrace {
			return false, e.node, false
		}
		again := l.unseat(e, mine, now)
		return again, "", again
	case unplaced:
		if now.Before(e.retryAt) {
			return false, "", false
		}
		e.state = waiting
		return true, "", true
	default:
		return true, "", true // the batch ignores a pod it has
	}
}

// unseat takes a pod off its usable node, which it does not get onto, and reports whether it is to be planned again at once.
// mine says that the room there is still the pod's. l.mu is held.
func (l *ledger) unseat(e *entry, mine bool, now time.Time) (again bool) {
	node := e.node
	l.unassign(e)
	e.state, e.offered = waiting, now
	if mine {
		if pause := l.spurn(e, node); pause > 0 {
			e.state, e.retryAt = unplaced, now.Add(pause)
		}
	}
	return e.state == waiting
}

// spurn notes that a node of the pod's own refuses it, and returns how long nothing is bought for it: not at all the first time.
// l.mu is held.
func (l *ledger) spurn(e *entry, node string) time.Duration {
	e.spurned++
	if e.spurned == 1 {
		return 0
	}
	l.refusers[e.pod.UID] = node
	return min(spurnedFirst<<min(e.spurned-2, 10), spurnedLast)
}

// refused returns, once, the pods that a second node of their own refuses, each with that node's name.
func (l *ledger) refused() map[*corev1.Pod]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[*corev1.Pod]string{}
	for uid, node := range l.refusers {
		if e := l.pods[uid]; e != nil {
			out[e.pod] = node
		}
	}
	clear(l.refusers)
	return out
}

// assign plans pods onto a claim.
func (l *ledger) assign(claim, node string, pods []*corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range pods {
		e := l.pods[p.UID]
		if e == nil {
			continue // bound or deleted meanwhile
		}
		l.unassign(e)
		e.state, e.claim, e.node, e.usable, e.failed, e.backoff, e.told = planned, claim, node, time.Time{}, false, 0, ""
		m := l.claims[claim]
		if m == nil {
			m = map[types.UID]*entry{}
			l.claims[claim] = m
			l.keepFor(claim)
		}
		m[p.UID] = e
	}
	if len(l.claims[claim]) > 0 {
		delete(l.idle, claim)
	}
	delete(l.lists, claim)
}

func (l *ledger) unassign(e *entry) {
	if m := l.claims[e.claim]; m != nil {
		if n := l.joined[e.claim]; n != "" {
			l.lifted = append(l.lifted, n)
		}
		delete(l.lists, e.claim)
		delete(m, e.pod.UID)
		if len(m) == 0 {
			delete(l.claims, e.claim)
			delete(l.intruders, e.claim)
			l.keepFor(e.claim)
			l.idle[e.claim] = time.Time{}
		}
	}
	e.claim, e.node, e.usable = "", "", time.Time{}
}

// unplace notes that no node can hold the pod, and reports whether the reason is news, which an empty one never is, and
// whether the pod may be parked.
func (l *ledger) unplace(uid types.UID, reason string, now time.Time) (news, parked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.pods[uid]
	if e == nil {
		return false, true
	}
	l.unassign(e)
	e.backoff = min(max(2*e.backoff, firstRetry), lastRetry)
	e.state, e.retryAt = unplaced, now.Add(e.backoff)
	if reason == "" || reason == e.told {
		return false, !e.loose
	}
	e.told = reason
	return true, !e.loose
}

// due moves unplaced pods whose time has come, or all of them, back to waiting and returns them. No change of pools helps a
// pod whose own nodes refuse it.
func (l *ledger) due(now time.Time, all bool) []*corev1.Pod {
	l.mu.Lock()
	var out []*corev1.Pod
	for _, e := range l.pods {
		if e.state != unplaced || (!all || e.spurned > 1) && now.Before(e.retryAt) {
			continue
		}
		for _, m := range e.comrades(now) {
			m.state, m.loose = waiting, m.group == nil || !m.group.parked
			out = append(out, m.pod)
		}
	}
	l.mu.Unlock()
	sortPods(out)
	return out
}

// each applies note to the entries of a claim and returns the pods for which it says true, seats left out. They are sorted after the lock
// is given back: scheduling cycles wait for it.
func (l *ledger) each(claim string, note func(*entry) bool) []*corev1.Pod {
	l.mu.Lock()
	var out []*corev1.Pod
	for _, e := range l.claims[claim] {
		if note(e) && e.owner == "" {
			out = append(out, e.pod)
		}
	}
	l.mu.Unlock()
	sortPods(out)
	return out
}

// lost takes the pods of a claim that will never have a node back to waiting and returns them. Its seats are gone: when
// the pods are planned again, so are those that come after them.
func (l *ledger) lost(claim string) []*corev1.Pod {
	return l.each(claim, func(e *entry) bool {
		if e.owner != "" {
			l.dropSeat(e)
			return false
		}
		l.unassign(e)
		e.state = waiting
		if e.group != nil && !e.group.known() {
			l.leaveGroup(e, "") // it comes with its group, whose least is known then
			delete(l.pods, e.pod.UID)
			return false
		}
		return true
	})
}

// redo takes a planned pod back to waiting and returns it, nil if it is not planned any more.
func (l *ledger) redo(uid types.UID) *corev1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.pods[uid]
	if e == nil || e.state != planned {
		return nil
	}
	l.unassign(e)
	e.state, e.failed = waiting, false
	return e.pod
}

// named notes the claim's node name and returns its pods.
func (l *ledger) named(claim, node string) []*corev1.Pod {
	return l.each(claim, func(e *entry) bool {
		e.node = node
		return true
	})
}

// usable notes that the claim's node can be bound to by the pods it admits and returns those for which that is news.
func (l *ledger) usable(claim, node string, admits func(*corev1.Pod) bool, now time.Time) []*corev1.Pod {
	return l.each(claim, func(e *entry) bool {
		if !e.usable.IsZero() || !admits(e.pod) {
			return false
		}
		e.node, e.usable = node, now
		return true
	})
}

// podsOf returns the pods of a claim.
func (l *ledger) podsOf(claim string) []*corev1.Pod {
	return l.each(claim, func(*entry) bool { return true })
}

// remove forgets a pod that is bound to the node or, if that is "", deleted. It returns the claim the pod was planned on and
// whether it was known.
func (l *ledger) remove(uid types.UID, node string) (claim string, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.pods[uid]
	if e == nil {
		return "", false
	}
	claim = e.claim
	lifted := l.lifted
	l.unassign(e)
	if node != "" && node == l.joined[claim] {
		l.lifted = lifted // the room is used, not free
	}
	l.leaveGroup(e, node)
	delete(l.pods, uid)
	return claim, true
}

// waiting keeps the pods that still wait to be planned, with when the earliest of them was offered.
func (l *ledger) waiting(pods []*corev1.Pod) (out []*corev1.Pod, offered map[types.UID]time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	offered = map[types.UID]time.Time{}
	for _, p := range pods {
		if e := l.pods[p.UID]; e != nil && e.state == waiting {
			out = append(out, e.pod)
			offered[p.UID] = e.offered
		}
	}
	return out, offered
}

// reserved lists the pods planned on every claim.
func (l *ledger) reserved() map[string][]*corev1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	for claim, m := range l.claims {
		if l.lists[claim] != nil {
			continue
		}
		pods := make([]*corev1.Pod, 0, len(m))
		for _, e := range m {
			pods = append(pods, e.pod)
		}
		l.lists[claim] = pods
	}
	return maps.Clone(l.lists)
}

// busy reports whether any claim is awaited by pods.
func (l *ledger) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.claims) > 0
}

// intrude notes that a pod has landed on the claim's node without being planned there, and reports whether pods or seats
// wait for that node.
func (l *ledger) intrude(claim string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.claims[claim]) == 0 {
		return false
	}
	l.intruders[claim] = true
	return true
}

// holds reports whether the claim has pods.
func (l *ledger) holds(claim string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.claims[claim]) > 0
}

// counts returns how many pods are in each state, and how many seats there are.
func (l *ledger) counts() (n [3]int, seats int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.pods {
		if e.owner != "" {
			seats++
			continue
		}
		n[e.state]++
	}
	return n, seats
}

func sortPods(pods []*corev1.Pod) {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
}
