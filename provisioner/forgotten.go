// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// A parked pod is retried by nothing but its release, so whoever parks must not forget. prove goes through all parked pods
// and all pods of the ledger and checks that something will still happen to each. What it finds in two proofs in a row, it
// mends and counts; each count is a bug elsewhere.

// sweepsPerProof is how many sweeps there are to a proof. Whatever is legitimately under way between two states of a pod
// (a second's pause after a failed write, an event that has not arrived yet) is over by the next proof.
const sweepsPerProof = 10

// limbo is a state that a pod must not stay in.
type limbo string

const (
	// limboGate: parked, and the ledger does not know the pod.
	limboGate limbo = "gate"
	// limboNode: parked, although its node is usable or it has been refused.
	limboNode limbo = "node"
	// limboBatch: waits to be planned, and is in no batch.
	limboBatch limbo = "batch"
	// limboClaim: waits for a claim that is gone.
	limboClaim limbo = "claim"
	// limboPod: holds a place, and is bound or gone.
	limboPod limbo = "pod"
)

// prove returns the pods that nothing seems to be about to happen to, and mends those that were suspects before.
func (p *Provisioner) prove(ctx context.Context, before map[types.UID]limbo) map[types.UID]limbo {
	now := p.suspects(ctx)
	for uid, l := range now {
		if before[uid] != l {
			continue
		}
		p.Metrics.Forgotten.WithLabelValues(string(l)).Inc()
		log.FromContext(ctx).Info("a waiting pod had been forgotten", "podUID", uid, "where", l)
		p.mend(ctx, uid, l)
		delete(now, uid)
	}
	return now
}

func (p *Provisioner) mend(ctx context.Context, uid types.UID, l limbo) {
	e, ok := p.ledger.get(uid)
	switch {
	case l == limboGate, l == limboNode:
		p.Gate.Release(uid)
	case !ok:
	case l == limboBatch:
		p.batch.Requeue(e.pod)
	case l == limboClaim:
		p.lose(ctx, e.claim, "its NodeClaim is gone")
	case l == limboPod:
		p.ledger.remove(uid, "")
		p.batch.Remove(uid)
	}
}

func (p *Provisioner) suspects(ctx context.Context) map[types.UID]limbo {
	out := map[types.UID]limbo{}
	parked := map[types.UID]bool{}
	for _, uid := range p.Gate.Parked(sweepsPerProof * sweepEvery) {
		parked[uid] = true
	}
	alive := map[string]bool{}
	for uid, e := range p.ledger.all() {
		pod, err := p.Pods.Pods(e.pod.Namespace).Get(e.pod.Name)
		switch {
		case apierrors.IsNotFound(err), err == nil && (pod.UID != uid || pod.Spec.NodeName != ""):
			out[uid] = limboPod
		case e.state == waiting && !p.batch.Has(uid) && !p.isPlanned(uid):
			out[uid] = limboBatch
		case e.state == planned && !p.exists(ctx, e.claim, alive):
			out[uid] = limboClaim
		case parked[uid] && e.group == nil && (e.state == unplaced || !e.usable.IsZero()):
			out[uid] = limboNode
		}
		delete(parked, uid)
	}
	for uid := range parked {
		out[uid] = limboGate
	}
	return out
}

// exists reports whether the claim is there or was written a moment ago; known remembers answers.
func (p *Provisioner) exists(ctx context.Context, claim string, known map[string]bool) bool {
	ok, asked := known[claim]
	if !asked {
		err := p.Kube.Get(ctx, types.NamespacedName{Name: claim}, &karpv1.NodeClaim{})
		ok = !apierrors.IsNotFound(err) || p.isRecent(claim)
		known[claim] = ok
	}
	return ok
}

// plans notes the pods that are being planned; what it returns ends that.
func (p *Provisioner) plans(pods []*corev1.Pod) (done func()) {
	set := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		set[pod.UID] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.planning = set
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.planning = nil
	}
}

func (p *Provisioner) isPlanned(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.planning[uid]
}

// get returns a copy of what is known about a pod.
func (l *ledger) get(uid types.UID) (entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.pods[uid]; e != nil {
		return *e, true
	}
	return entry{}, false
}

// all returns copies of what is known about each pod, seats left out.
func (l *ledger) all() map[types.UID]entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[types.UID]entry, len(l.pods))
	for uid, e := range l.pods {
		if e.owner == "" {
			out[uid] = *e
		}
	}
	return out
}
