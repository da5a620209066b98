// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Kept are the nodes that have joined and that pods or seats still wait for, empty for none. It takes no lock; the set is
// not changed after it was returned.
func (p *Provisioner) Kept() sets.Set[string] {
	return *p.ledger.kept.Load()
}

// Against lists the pods and seats that room on the node is kept for against this pod: those of no lower priority. It is
// empty for a pod that has a place there itself. A pod whose owner has a seat there takes that seat, so one of them does not
// count.
func (p *Provisioner) Against(pod *corev1.Pod, node string) []*corev1.Pod {
	var owner types.UID
	if ref := metav1.GetControllerOf(pod); ref != nil {
		owner = ref.UID
	}
	return p.ledger.against(pod, owner, node)
}

func (l *ledger) against(pod *corev1.Pod, owner types.UID, node string) []*corev1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.pods[pod.UID]
	claim, ok := l.awaited[node]
	if !ok || own != nil && own.claim == claim {
		return nil
	}
	seated := own != nil && own.claim != "" || owner == "" // a pod with a place elsewhere takes no seat here
	var out []*corev1.Pod
	for _, e := range l.claims[claim] {
		switch {
		case priority(e.pod) < priority(pod):
		case !seated && e.owner == owner:
			seated = true
		default:
			out = append(out, e.pod)
		}
	}
	return out
}

// join notes that the claim's Node is there.
func (l *ledger) join(claim, node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.joined[claim] != node {
		l.joined[claim] = node
		l.keep()
	}
}

// leave notes that the claim or its Node is gone.
func (l *ledger) leave(claim string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.joined[claim]; ok {
		delete(l.joined, claim)
		l.keep()
	}
}

// keepFor publishes them when the claim has got its first pod or lost its last. Nothing changes before it has a Node, and a
// burst plans hundreds of claims while scheduling cycles wait for the lock. l.mu is held.
func (l *ledger) keepFor(claim string) {
	if l.joined[claim] != "" {
		l.keep()
	}
}

// keep publishes the nodes that have joined and are waited for. l.mu is held.
func (l *ledger) keep() {
	clear(l.awaited)
	for claim := range l.claims {
		if n := l.joined[claim]; n != "" {
			l.awaited[n] = claim
		}
	}
	kept := sets.KeySet(l.awaited)
	l.kept.Store(&kept)
}

// lift returns, once, the nodes on which room that was kept has come free: a pod that it was kept against may fit now.
func (l *ledger) lift() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lifted := l.lifted
	l.lifted = nil
	return lifted
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}
