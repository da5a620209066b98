// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/provisioner/hypothesis"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// The pods of a group are planned together or not at all, launched together, and let go together. A group that has lost some
// of its room and finds no other gives the rest back after a while.

// groupPatience is how long a group keeps the room it has while it waits for the rest.
const groupPatience = 2 * time.Minute

// group is a set of pods that are only of use together.
type group struct {
	key types.NamespacedName
	// least is how many of its members have to have a node, scheduled ones included; 0 until the group has been offered.
	least   int
	members map[types.UID]*entry
	// domain is the node label all members have to agree on, "" for none; value is the one that was chosen.
	domain, value string
	// scheduled are the members that have a node, with its name: as the scheduler counted them when the group last failed, and
	// what pods have told since. Not all of them need ever have been members here.
	scheduled map[types.UID]string
	parked    bool      // its members' gates are closed
	short     time.Time // since when it has had some room, and too little; zero if it has not
}

// OfferGroup takes the members of a group that fit on no node together, as Offer takes a pod. domain is the node label whose
// value has to be the same for all of them, "" for none. scheduled are the members that have a node already.
func (p *Provisioner) OfferGroup(key types.NamespacedName, least int, domain string, scheduled, pods []*corev1.Pod) (parked bool) {
	on := make(map[types.UID]string, len(scheduled))
	for _, pod := range scheduled {
		on[pod.UID] = pod.Spec.NodeName
	}
	fresh, parked := p.ledger.offerGroup(group{key: key, least: least, domain: domain, scheduled: on}, pods, p.Clock.Now())
	for _, pod := range fresh {
		p.batch.Add(pod)
	}
	return parked
}

// offerGroup is offer for all members at a time: they are parked together or not at all, because the scheduler tries none of
// them while one is parked.
func (l *ledger) offerGroup(as group, pods []*corev1.Pod, now time.Time) (fresh []*corev1.Pod, parked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.groupOf(as.key)
	g.least, g.domain, g.scheduled = as.least, as.domain, as.scheduled
	for _, pod := range pods {
		e := l.pods[pod.UID]
		if e == nil {
			e = &entry{offered: now}
			l.pods[pod.UID] = e
		}
		e.pod, e.group, g.members[pod.UID] = pod, g, e
	}
	// The time to bind begins when all may: until then a node that is usable is no use.
	awaits, since := g.awaits()
	for _, pod := range pods {
		e := l.pods[pod.UID]
		if mine := !l.intruders[e.claim]; e.state == planned && !awaits && (!mine || now.Sub(since) >= bindGrace) {
			l.unseat(e, mine, now)
		}
	}
	for _, e := range g.members {
		if e.state == unplaced && !now.Before(e.retryAt) {
			e.state = waiting
		}
	}
	replans := g.replans()
	for _, e := range g.members {
		if e.state == unplaced && replans && e.spurned < 2 {
			e.state = waiting // whoever is planned without it may lack it
		}
		if e.state == waiting {
			fresh = append(fresh, e.pod) // the batch ignores a pod it has
		}
	}
	sortPods(fresh)
	g.parked, _ = g.awaits()
	for _, pod := range pods {
		l.pods[pod.UID].loose = !g.parked
	}
	return fresh, g.parked
}

// groupOf is the group of that name, a new one if there is none. l.mu is held.
func (l *ledger) groupOf(key types.NamespacedName) *group {
	g := l.groups[key]
	if g == nil {
		g = &group{key: key, members: map[types.UID]*entry{}, scheduled: map[types.UID]string{}}
		l.groups[key] = g
	}
	return g
}

// regroup has a pod of an earlier process wait for the others of its group, if it is of one, although the group itself is not
// known before it is offered. l.mu is held.
func (l *ledger) regroup(e *entry) {
	if key := groupOfPod(e.pod); e.group == nil && key.Name != "" {
		e.group = l.groupOf(key)
		e.group.members[e.pod.UID] = e
	}
}

// known reports whether the group was offered to this process.
func (g *group) known() bool { return g.least > 0 }

// awaits reports whether a member is still to be planned or its node to become usable; if not, since is when the last of
// the nodes did.
func (g *group) awaits() (awaits bool, since time.Time) {
	for _, e := range g.members {
		switch {
		case e.state == waiting, e.state == planned && e.usable.IsZero():
			return true, time.Time{}
		case e.state == planned && e.usable.After(since):
			since = e.usable
		}
	}
	return false, since
}

// replans reports whether a member waits to be planned.
func (g *group) replans() bool {
	for _, e := range g.members {
		if e.state == waiting {
			return true
		}
	}
	return false
}

// comrades are the refused pods that are planned again with this one: itself and those of its group, nobody while nothing is
// bought for one of them because its own nodes refused it.
func (e *entry) comrades(now time.Time) []*entry {
	if e.group == nil {
		return []*entry{e}
	}
	var out []*entry
	for _, m := range e.group.members {
		if m.state != unplaced {
			continue
		}
		if m.spurned > 1 && now.Before(m.retryAt) {
			return nil
		}
		out = append(out, m)
	}
	return out
}

// release returns the pods of all members, which are let go: one that stayed parked would hold up the others.
func (g *group) release() []*corev1.Pod {
	g.parked = false
	out := make([]*corev1.Pod, 0, len(g.members))
	for _, e := range g.members {
		out = append(out, e.pod)
	}
	return out
}

// leaveGroup notes that a member is bound to the node or, if that is "", gone. l.mu is held.
func (l *ledger) leaveGroup(e *entry, node string) {
	g := e.group
	if g == nil {
		return
	}
	delete(g.members, e.pod.UID)
	e.group = nil
	if node != "" {
		g.scheduled[e.pod.UID] = node
	}
	if len(g.members) == 0 {
		delete(l.groups, g.key)
	}
}

// left notes that a pod that may have been scheduled is gone.
func (l *ledger) left(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.groups[groupOfPod(pod)]; g != nil {
		delete(g.scheduled, pod.UID)
	}
}

// groupOfPod is the pod group a pod says it is of, with no name if it says none.
func groupOfPod(pod *corev1.Pod) types.NamespacedName {
	if s := pod.Spec.SchedulingGroup; s != nil && s.PodGroupName != nil {
		return types.NamespacedName{Namespace: pod.Namespace, Name: *s.PodGroupName}
	}
	return types.NamespacedName{}
}

// places are how many of the group's members have a node or a claim, and how many of these a node.
func (g *group) places() (all, scheduled int) {
	all = len(g.scheduled)
	for uid, e := range g.members {
		if _, counted := g.scheduled[uid]; e.state == planned && !counted { // a scheduler assumes pods before they are bound
			all++
		}
	}
	return all, len(g.scheduled)
}

// incomplete finds the pods of a plan whose groups do not get enough places by it, with what to tell them.
func (l *ledger) incomplete(r *plan.Result) map[types.UID]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.groups) == 0 {
		return nil
	}
	places := map[*group]int{}
	each := func(uid types.UID, do func(*group)) {
		if e := l.pods[uid]; e != nil && e.group != nil {
			do(e.group)
		}
	}
	count := func(uid types.UID) { each(uid, func(g *group) { places[g]++ }) }
	for _, pl := range r.Placements {
		count(pl.Pod.UID)
	}
	for i := range r.Launches {
		for _, q := range r.Launches[i].Pods {
			count(q.UID)
		}
	}
	out := map[types.UID]string{}
	for g, n := range places {
		all, _ := g.places()
		if have := n + all; have < g.least {
			for uid := range g.members {
				out[uid] = fmt.Sprintf("nodes can be had for %d pods of pod group %q only, and it needs %d", have, g.key, g.least)
			}
		}
	}
	return out
}

// whole takes the pods of groups that do not get enough places out of a plan.
func (p *Provisioner) whole(ctx context.Context, r plan.Result) plan.Result {
	lacking := p.ledger.incomplete(&r)
	if len(lacking) == 0 {
		return r
	}
	log.FromContext(ctx).Info("pod groups do not get enough nodes, none is bought for them", "pods", len(lacking))
	var refusals []hypothesis.Refusal
	for uid, why := range lacking {
		refusals = append(refusals, hypothesis.Refusal{Trial: hypothesis.Trial{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}}, Plugin: "PodGroup", Reason: why})
	}
	return without(r, refusals)
}

// together keeps the pods that may be let go: those of no group, and all of a group when every node of it is usable. pods
// are those whose node has just become usable.
func (l *ledger) together(pods []*corev1.Pod) []*corev1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*corev1.Pod
	seen := map[*group]bool{}
	for _, pod := range pods {
		e := l.pods[pod.UID]
		if e == nil || e.group == nil {
			out = append(out, pod)
			continue
		}
		if seen[e.group] {
			continue
		}
		seen[e.group] = true
		awaits, _ := e.group.awaits()
		if have, _ := e.group.places(); !awaits && have >= e.group.least {
			out = append(out, e.group.release()...)
		}
	}
	return out
}

// settled returns the members of parked groups for which nothing is on its way any more, and no room is held that the rest
// might join; see giveUp.
func (l *ledger) settled() (out []*corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.groups {
		awaits, _ := g.awaits()
		if have, scheduled := g.places(); g.parked && !awaits && (have >= g.least || have == scheduled) {
			out = append(out, g.release()...)
		}
	}
	return out
}

// giveUp returns the members of groups that have had some room and too little for too long, with their places given back.
func (l *ledger) giveUp(now time.Time) map[types.NamespacedName][]*corev1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[types.NamespacedName][]*corev1.Pod{}
	for key, g := range l.groups {
		have, scheduled := g.places()
		switch {
		case have == scheduled || have >= g.least:
			g.short = time.Time{}
			continue
		case g.short.IsZero():
			g.short = now
			continue
		case now.Sub(g.short) < groupPatience:
			continue
		}
		g.short = time.Time{}
		for _, e := range g.members {
			if e.state == planned {
				l.unassign(e)
				e.backoff = min(max(2*e.backoff, firstRetry), lastRetry)
				e.state, e.retryAt = unplaced, now.Add(e.backoff)
			}
		}
		out[key] = g.release()
	}
	return out
}

// disband gives the room of groups back that have waited too long for the rest, and lets go those that wait for nothing.
func (p *Provisioner) disband(ctx context.Context) {
	for key, pods := range p.ledger.giveUp(p.Clock.Now()) {
		log.FromContext(ctx).Info("a pod group has waited too long for the rest of its nodes and gives the others back", "podGroup", key, "pods", len(pods))
		p.Gate.Release(uidsOf(pods)...)
	}
	p.Gate.Release(uidsOf(p.ledger.settled())...)
}

func uidsOf(pods []*corev1.Pod) []types.UID {
	uids := make([]types.UID, len(pods))
	for i, pod := range pods {
		uids[i] = pod.UID
	}
	return uids
}
