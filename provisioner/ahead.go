// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/provisioner/view"
)

// Owners say how many pods a pod's controller has still to create; demand.Owners is one.
type Owners interface {
	// Coming is how many more pods like this one are to be expected, and which pods of the same owner have no node.
	Coming(ctx context.Context, pod *corev1.Pod) (n int, pending []types.UID)
}

const (
	// sweepEvery is how often seats are compared with what owners still want, and claims without pods are looked for.
	sweepEvery = time.Second
	// patience is how long seats are kept while no pod of their owner comes. Controllers back off at most some seconds
	// between attempts; an owner that is silent for longer is stuck for a reason nobody has told.
	patience = 2 * time.Minute
	// distrust is how long the pods of an owner that let its seats go stale are planned only once they exist.
	distrust = 10 * time.Minute
)

// settle gives pods that were expected the place that was planned for them, and returns the others.
func (p *Provisioner) settle(ctx context.Context, pods []*corev1.Pod) (rest []*corev1.Pod) {
	claims := map[string]bool{}
	for _, pod := range pods {
		ref := metav1.GetControllerOf(pod)
		if ref == nil || p.ledger.seated(ref.UID) == 0 {
			rest = append(rest, pod)
			continue
		}
		claim, node, ok := p.ledger.take(pod, p.Views.Pod(pod).Class, ref.UID, p.Clock.Now())
		if !ok {
			rest = append(rest, pod)
			continue
		}
		claims[claim] = true
		p.tell(claim, "", pod)
		if node != "" {
			p.nominate(ctx, node, []*corev1.Pod{pod})
		}
	}
	for claim := range claims {
		p.check(ctx, claim) // the node may have become usable, or the claim have died, meanwhile
	}
	if n := len(pods) - len(rest); n > 0 {
		p.Metrics.Settled.Add(float64(n))
		log.FromContext(ctx).V(1).Info("pods take the places planned for them", "batch", n)
	}
	return rest
}

// lookAhead returns seats for the pods that the owners of these pods have still to create.
func (p *Provisioner) lookAhead(ctx context.Context, pods []*capacity.Pod, objects map[types.UID]*corev1.Pod) []seat {
	if p.Owners == nil {
		return nil
	}
	var seats []seat
	seen := map[types.UID]bool{}
	for _, q := range pods {
		pod := objects[q.UID]
		ref := metav1.GetControllerOf(pod)
		if ref == nil || pod.Spec.SchedulingGroup != nil || seen[ref.UID] || p.ledger.distrusts(ref.UID, p.Clock.Now()) {
			continue
		}
		seen[ref.UID] = true
		coming, pending := p.Owners.Coming(ctx, pod)
		// Pods that exist and have not had their scheduling cycle yet will fail in it as this one did.
		n := min(coming+p.ledger.strangers(pending)-p.ledger.seated(ref.UID), p.LookAhead-len(seats))
		if n <= 0 {
			continue
		}
		for range n {
			seats = append(seats, p.seat(pod, q, ref))
		}
		log.FromContext(ctx).Info("planning for pods that are still to be created", "owner", ref.Kind+"/"+pod.Namespace+"/"+ref.Name, "pods", n)
	}
	return seats
}

// seat is a stand-in for one more pod like this one.
func (p *Provisioner) seat(pod *corev1.Pod, q *capacity.Pod, ref *metav1.OwnerReference) seat {
	p.serial++
	stand := *pod // what is below the surface is shared and read-only
	stand.Name = fmt.Sprintf("%s-coming-%d", ref.Name, p.serial)
	stand.UID = types.UID(fmt.Sprintf("coming/%s/%d", ref.UID, p.serial))
	stand.ResourceVersion, stand.Status = "", corev1.PodStatus{}
	return seat{pod: &stand, owner: ref.UID, plan: &capacity.Pod{
		NamespacedName: types.NamespacedName{Namespace: stand.Namespace, Name: stand.Name}, UID: stand.UID, Priority: q.Priority, Class: q.Class,
	}}
}

// bounded drops the seats that a plan puts onto pools beyond what their annotation allows. before are the seats that are
// there already, by pool.
func bounded(v *capacity.View, r *plan.Result, seats []seat, before map[string]int) (kept []seat, changed bool) {
	isSeat := make(map[types.UID]bool, len(seats))
	for _, s := range seats {
		isSeat[s.pod.UID] = true
	}
	over, used := map[types.UID]bool{}, maps.Clone(before)
	count := func(pool *capacity.Pool, uid types.UID) {
		if pool == nil || pool.LookAhead == nil || !isSeat[uid] {
			return
		}
		if used[pool.Name]++; used[pool.Name] > *pool.LookAhead {
			over[uid] = true
		}
	}
	for _, pl := range r.Placements {
		if isSeat[pl.Pod.UID] {
			count(v.Pool(pl.Node.Pool), pl.Pod.UID)
		}
	}
	for i := range r.Launches {
		for _, q := range r.Launches[i].Pods {
			count(r.Launches[i].Pool, q.UID)
		}
	}
	if len(over) == 0 {
		return seats, false
	}
	for _, s := range seats {
		if !over[s.pod.UID] {
			kept = append(kept, s)
		}
	}
	return kept, true
}

// sweep keeps seats and claims in line with what is still wanted, until ctx ends.
func (p *Provisioner) sweep(ctx context.Context) {
	tick := p.Clock.NewTicker(sweepEvery)
	defer tick.Stop()
	var suspects map[types.UID]limbo
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
		if n%sweepsPerProof == 0 {
			suspects = p.prove(ctx, suspects)
		}
		for _, node := range p.ledger.lift() {
			p.freed.note(node)
		}
		p.forgetFound()
		p.overdue()
		p.disband(ctx)
		p.reconsider(ctx)
		for _, claim := range p.ledger.unneeded(p.Clock.Now()) {
			p.cancel(ctx, claim)
		}
	}
}

// reconsider gives up the seats of pods that will not come: their owner was scaled down, is gone, fails to create pods or
// has been silent for too long.
func (p *Provisioner) reconsider(ctx context.Context) {
	now := p.Clock.Now()
	for owner, stand := range p.ledger.expecting(now) {
		n, pending := 0, []types.UID(nil)
		if p.Owners != nil && !stand.silent {
			n, pending = p.Owners.Coming(ctx, stand.pod)
		}
		if dropped := p.ledger.trim(owner, n, pending); dropped > 0 {
			log.FromContext(ctx).Info("giving up places for pods that are not coming", "pods", dropped, "owner", ownerName(stand.pod), "silent", stand.silent)
		}
	}
}

func ownerName(pod *corev1.Pod) string {
	ref := metav1.GetControllerOf(pod)
	return ref.Kind + "/" + pod.Namespace + "/" + ref.Name
}

// cancel deletes a claim that no pod waits for any more, unless its node is in use already: from then on it is a node like
// any other, and whether it is worth keeping is decided elsewhere.
func (p *Provisioner) cancel(ctx context.Context, claim string) {
	c := &karpv1.NodeClaim{}
	if err := p.Kube.Get(ctx, types.NamespacedName{Name: claim}, c); err != nil || !c.DeletionTimestamp.IsZero() {
		if client.IgnoreNotFound(err) != nil {
			log.FromContext(ctx).Error(err, "reading a claim that no pod waits for", "nodeClaim", claim)
		}
		return
	}
	if c.Annotations[capacity.ReplacesAnnotation] != "" {
		return // bought for pods that run elsewhere yet; who bought it knows when they do not need it
	}
	if n := p.nodeOf(c); n != nil && (view.Phase(c, n) == capacity.Usable || p.occupied(n.Name)) {
		return
	}
	if p.ledger.holds(claim) || p.KeptFree(claim) {
		return
	}
	err := p.Kube.Delete(ctx, c, client.Preconditions{UID: &c.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		log.FromContext(ctx).Error(err, "deleting a claim that no pod waits for", "nodeClaim", claim)
		p.ledger.again(claim)
		return
	}
	p.Metrics.Cancelled.WithLabelValues(c.Labels[karpv1.NodePoolLabelKey]).Inc()
	log.FromContext(ctx).Info("cancelled a claim that no pod waits for any more", "nodeClaim", claim, "launched", c.Status.ProviderID != "")
}

// occupied reports whether a pod that is not a DaemonSet's has landed on the node.
func (p *Provisioner) occupied(node string) bool {
	pods, err := p.Pods.List(labels.Everything())
	if err != nil {
		return true
	}
	for _, pod := range pods {
		if pod.Spec.NodeName == node {
			if ref := metav1.GetControllerOf(pod); ref == nil || ref.Kind != "DaemonSet" {
				return true
			}
		}
	}
	return false
}
