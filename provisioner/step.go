// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/launch"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/provisioner/view"
)

// createAtOnce bounds the NodeClaims being written at a time.
const createAtOnce = 32

// step plans one batch. Whatever fails puts the pods back: none is ever forgotten.
func (p *Provisioner) step(ctx context.Context, batch []*corev1.Pod) {
	defer p.plans(batch)() // before the lock: a batch that waits for another plan is not forgotten
	p.steps.Lock()
	defer p.steps.Unlock()
	logger := log.FromContext(ctx)
	start := p.Clock.Now()
	// 1. Batch: pods that were bound, deleted or planned meanwhile are left out, and those that were expected take their seats.
	waiting, offered := p.ledger.waiting(batch)
	waiting = p.settle(ctx, waiting)
	if len(waiting) == 0 {
		return
	}
	p.Metrics.waited(start, offered)
	// 2. View, and what else is coming.
	reserved := p.reserved()
	v, err := p.Views.Build(ctx, view.Pending{Claims: p.recentClaims(), Reserved: reserved})
	if err != nil {
		logger.Error(err, "building the view", "batch", len(waiting))
		p.again(ctx, waiting)
		return
	}
	pods := make(map[types.UID]*corev1.Pod, len(waiting))
	in := plan.Input{View: v, OnlyInFlight: true}
	for _, pod := range waiting {
		pods[pod.UID] = pod
		in.Pods = append(in.Pods, p.Views.Pod(pod))
	}
	in.Pods = p.keepTogether(ctx, v, in.Pods, pods)
	seats := p.lookAhead(ctx, in.Pods, pods)
	viewed := p.Clock.Now()
	// 3. Plan, and 4. verify with the scheduler's own filters.
	result := p.solve(ctx, in, Pods{Wanting: pods, Reserved: reserved, Class: p.classOf}, seats)
	result = p.whole(ctx, result)
	solved := p.Clock.Now()
	// 5. Record and claim.
	p.place(ctx, result.Placements, pods)
	if loading(v) && solved.Sub(p.began) < loadingPatience {
		p.postpone(ctx, result.Unplaced, pods)
	} else {
		p.refuse(ctx, result.Unplaced, pods, solved, loading(v))
	}
	drafts := p.drafts(ctx, result.Launches, pods, offered, solved)
	// 6. Launch.
	created := p.create(ctx, drafts)
	p.Metrics.observe(start, viewed, solved, p.Clock.Now(), len(waiting))
	logger.Info("planned", "batch", len(waiting), "placed", len(result.Placements), "launches", len(created), "unplaced", len(result.Unplaced),
		"price", sumPrice(result.Launches), "view", viewed.Sub(start), "plan", solved.Sub(viewed), "claims", p.Clock.Since(solved))
}

// solve plans pods and seats. The pods come first: a seat never takes the place of a pod that is there.
func (p *Provisioner) solve(ctx context.Context, in plan.Input, pods Pods, seats []seat) plan.Result {
	there := in.Pods
	for {
		in.Pods = slices.Clone(there)
		for _, s := range seats {
			pods.Wanting[s.pod.UID] = s.pod
			in.Pods = append(in.Pods, s.plan)
		}
		result := Planner{Judge: p.Judge, Metrics: p.Metrics}.Solve(ctx, in, pods)
		kept, changed := bounded(in.View, &result, seats, p.ledger.seatsByPool())
		if !changed {
			return p.expect(result, seats)
		}
		seats = kept
	}
}

// expect enters the seats that have a place into the ledger, node by node and nodes with pods first, so that the pods to
// come fill one node after the other and those that do not come leave whole nodes empty. Seats without a place are taken out of the plan.
func (p *Provisioner) expect(r plan.Result, seats []seat) plan.Result {
	if len(seats) == 0 {
		return r
	}
	byUID := make(map[types.UID]seat, len(seats))
	for _, s := range seats {
		byUID[s.pod.UID] = s
	}
	var placed []seat
	place := func(uid types.UID, pool string) {
		if s, ok := byUID[uid]; ok {
			s.pool = pool
			placed = append(placed, s)
		}
	}
	for _, pl := range r.Placements {
		place(pl.Pod.UID, pl.Node.Pool)
	}
	onlySeats := func(l plan.Launch) bool {
		return !slices.ContainsFunc(l.Pods, func(q *capacity.Pod) bool { _, isSeat := byUID[q.UID]; return !isSeat })
	}
	for _, last := range []bool{false, true} {
		for _, l := range r.Launches {
			if onlySeats(l) != last {
				continue
			}
			for _, q := range l.Pods {
				place(q.UID, l.Pool.Name)
			}
		}
	}
	p.ledger.expect(placed, p.Clock.Now())
	r.Unplaced = slices.DeleteFunc(r.Unplaced, func(u plan.Unplaced) bool {
		_, isSeat := byUID[u.Pod.UID]
		return isSeat
	})
	return r
}

func (p *Provisioner) classOf(pod *corev1.Pod) *capacity.Class { return p.Views.Pod(pod).Class }

// again puts pods back into the batch after a failure that is not theirs, slowly enough not to spin.
func (p *Provisioner) again(ctx context.Context, pods []*corev1.Pod) {
	p.requeue(ctx, pods, time.Second)
}

func (p *Provisioner) requeue(ctx context.Context, pods []*corev1.Pod, pause time.Duration) {
	timer := p.Clock.NewTimer(pause)
	go func() {
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C():
			p.batch.Requeue(pods...)
		}
	}()
}

// place reserves room on nodes that are on their way.
func (p *Provisioner) place(ctx context.Context, placements []plan.Placement, pods map[types.UID]*corev1.Pod) {
	for _, pl := range placements {
		pod := pods[pl.Pod.UID]
		p.ledger.assign(pl.Node.Claim, pl.Node.Name, []*corev1.Pod{pod})
		p.tell(pl.Node.Claim, words(pl.Node), pod)
		if pl.Node.Name != "" {
			p.nominate(ctx, pl.Node.Name, []*corev1.Pod{pod})
		}
	}
	for _, claim := range claimsOf(placements) {
		p.check(ctx, claim) // the node may have become usable, or the claim have died, while the plan was made
	}
}

const (
	// loadingPatience is how long pods stay parked after the start because it is not known yet what can be bought for them, and
	// loadingPause how soon that is looked at again. The first catalogue takes a second or two.
	loadingPatience = 10 * time.Second
	loadingPause    = 100 * time.Millisecond
)

// postpone has pods planned again in a moment. They stay parked: other autoscalers would buy for a pod that is refused.
func (p *Provisioner) postpone(ctx context.Context, list []plan.Unplaced, pods map[types.UID]*corev1.Pod) {
	waiting := make([]*corev1.Pod, 0, len(list))
	for _, u := range list {
		waiting = append(waiting, pods[u.Pod.UID])
	}
	if len(waiting) > 0 {
		p.requeue(ctx, waiting, loadingPause)
	}
}

// refuse tells why pods have no place and lets them go back to the scheduler, which retries them as it retries any
// unschedulable pod. While what a pool can buy is not known yet, nothing is told: the reason would be gone in a second.
func (p *Provisioner) refuse(ctx context.Context, list []plan.Unplaced, pods map[types.UID]*corev1.Pod, now time.Time, loading bool) {
	var uids []types.UID
	for _, u := range list {
		pod, note := pods[u.Pod.UID], explain(u)
		if loading {
			note = ""
		}
		news, parked := p.ledger.unplace(u.Pod.UID, note, now)
		if news {
			p.Events.Eventf(pod, nil, corev1.EventTypeWarning, "FailedScheduling", "Provisioning", "%s", note)
			log.FromContext(ctx).Info("no node can hold the pod", "pod", u.Pod.NamespacedName, "nodePool", u.Pool, "reason", string(u.Reason), "detail", u.Detail)
		}
		p.Metrics.Unplaced.WithLabelValues(string(u.Reason)).Inc()
		if parked { // else it is with the scheduler already, and has no need of another cycle
			uids = append(uids, u.Pod.UID)
		}
	}
	p.Gate.Release(uids...)
}

// loading reports whether some pool that is ready has no catalogue yet: this process has just started.
func loading(v *capacity.View) bool {
	for _, p := range v.Pools {
		if p.Blocked == "" && p.Catalog == nil {
			return true
		}
	}
	return false
}

// create writes the claims and hands those that exist over to the launcher, each launch group as soon as all of its claims
// have an answer: no launch waits for the claims of others. A pod belongs to its claim before the claim exists, so that the
// claim's death, however early, finds it.
func (p *Provisioner) create(ctx context.Context, drafts []draft) []*karpv1.NodeClaim {
	sem := make(chan struct{}, createAtOnce)
	failed := make([]bool, len(drafts))
	together := togetherOf(drafts)
	left := make([]atomic.Int32, len(drafts)) // of each group, at its first member's index
	for _, members := range together {
		left[members[0]].Store(int32(len(members)))
	}
	var wg sync.WaitGroup
	for i, d := range drafts {
		p.ledger.assign(d.claim.Name, "", d.places)
		sem <- struct{}{}
		wg.Go(func() {
			defer func() { <-sem }()
			switch err := p.writeInTime(ctx, d); {
			case errors.Is(err, errUnanswered):
				failed[i] = true // its group goes without it
			case err != nil:
				p.unwritten(ctx, d.claim, err)
				failed[i] = true
			default:
				p.remember(d.claim)
			}
			if members := together[groupOf(d)]; left[members[0]].Add(-1) == 0 {
				p.Launcher.Launch(ctx, written(drafts, members, failed))
			}
		})
	}
	wg.Wait()
	var out []*karpv1.NodeClaim
	for i, d := range drafts {
		if failed[i] {
			continue
		}
		out = append(out, d.claim)
		p.created(d)
	}
	return out
}

// writePatience is how long a plan waits for the API server to answer the creation of one claim. A single claim can hang for long where
// others do not, on a slow admission webhook for one NodePool.
const writePatience = 3 * time.Second

// errUnanswered says that a claim is still being written: whether it exists is not known, and somebody else follows it up.
var errUnanswered = errors.New("the API server has not answered yet")

// writeInTime is write for as long as a plan waits. A claim that takes longer keeps its pods and is launched by itself when it is there; until
// then it counts as written, so that nothing is bought in its place.
func (p *Provisioner) writeInTime(ctx context.Context, d draft) error {
	stand := d.claim.DeepCopy() // the client writes into the other one
	done := make(chan error, 1)
	go func() { done <- p.write(ctx, d.claim) }()
	timer := p.Clock.NewTimer(writePatience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C():
		p.remember(stand)
		log.FromContext(ctx).Info("the API server does not answer the creation of a NodeClaim, other plans go on", "nodeClaim", stand.Name, "nodePool", stand.Labels[karpv1.NodePoolLabelKey])
		go p.follow(ctx, d, stand, done)
		return errUnanswered
	}
}

// follow waits until it is known whether a claim exists, and launches it if it does.
func (p *Provisioner) follow(ctx context.Context, d draft, stand *karpv1.NodeClaim, done <-chan error) {
	again := p.Clock.NewTicker(recentFor / 3)
	defer again.Stop()
	for {
		select {
		case <-again.C():
			p.remember(stand)
		case err := <-done:
			if err != nil {
				p.disown(stand.Name)
				p.unwritten(ctx, d.claim, err)
				return
			}
			p.remember(d.claim)
			p.Launcher.Launch(ctx, []*karpv1.NodeClaim{d.claim})
			p.created(d)
			return
		}
	}
}

// unwritten has the pods of a claim that certainly does not exist planned again.
func (p *Provisioner) unwritten(ctx context.Context, c *karpv1.NodeClaim, err error) {
	log.FromContext(ctx).Error(err, "creating a NodeClaim", "nodeClaim", c.Name, "nodePool", c.Labels[karpv1.NodePoolLabelKey])
	p.again(ctx, p.ledger.lost(c.Name))
}

// created counts a claim that exists and tells its pods.
func (p *Provisioner) created(d draft) {
	p.Metrics.Claims.WithLabelValues(d.claim.Labels[karpv1.NodePoolLabelKey]).Inc()
	p.tell(d.claim.Name, d.what, d.pods...)
}

// groupOf is the launch group of a draft; a claim without one is a group of its own.
func groupOf(d draft) string {
	return cmp.Or(d.claim.Annotations[launch.LaunchGroupAnnotation], d.claim.Name)
}

// togetherOf lists the drafts of each launch group, by their indices.
func togetherOf(drafts []draft) map[string][]int {
	out := map[string][]int{}
	for i, d := range drafts {
		out[groupOf(d)] = append(out[groupOf(d)], i)
	}
	return out
}

// written are the claims of the members that exist.
func written(drafts []draft, members []int, failed []bool) []*karpv1.NodeClaim {
	var out []*karpv1.NodeClaim
	for _, i := range members {
		if !failed[i] {
			out = append(out, drafts[i].claim)
		}
	}
	return out
}

// write creates a claim and fails only if it is certain that there is none. An attempt that ends without saying so (a
// time-out, a lost connection) is followed by others until the API server answers: a claim that is there unknown to us would
// be launched for nobody while its pods are planned again. Refusals after such an attempt do not settle it (an API server that has just started
// refuses everybody until it has read its rules); after some of them the claim is deleted instead.
func (p *Provisioner) write(ctx context.Context, c *karpv1.NodeClaim) error {
	open := false // whether an earlier attempt may have written it
	for n, refused := 0, 0; ; n++ {
		err := p.Kube.Create(ctx, c, unvalidated)
		switch {
		case err == nil:
			return nil
		case definite(err) && !open:
			return err
		case apierrors.IsAlreadyExists(err): // ours: names are random
			if p.Kube.Get(ctx, client.ObjectKeyFromObject(c), c) == nil {
				return nil
			} // the cache does not show it yet
		case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown:
			if refused++; refused >= writeTries && client.IgnoreNotFound(p.Kube.Delete(ctx, c)) == nil {
				return err
			}
		}
		open = open || !definite(err)
		timer := p.Clock.NewTimer(min(writeFirst<<min(n, 10), writeLast))
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C():
		}
	}
}

const (
	// writeTries is how often the API server may refuse a claim that may be there before it is deleted.
	writeTries = 5
	// writeFirst and writeLast are the first and the longest pause between attempts; they double.
	writeFirst = 100 * time.Millisecond
	writeLast  = time.Second
)

// unvalidated spares the API server the search for unknown and repeated fields, which a typed object cannot have: some tenth
// of what writing a claim costs, and the pod waits for it.
const unvalidated = client.FieldValidation(metav1.FieldValidationIgnore)

// definite reports whether the API server has refused the object, so that it certainly was not written.
func definite(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsUnauthorized(err) ||
		apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsAlreadyExists(err)
}

// tell writes Karpenter's Nominated event on pods, as rarely as Karpenter does: in a burst, an event a pod would be half of
// all writes. what describes the claim's instance, "" if that is not known.
func (p *Provisioner) tell(claim, what string, pods ...*corev1.Pod) {
	if what != "" {
		what = " (" + what + ")"
	}
	for _, pod := range pods {
		if p.nominated.Allow() {
			p.Events.Eventf(pod, nil, corev1.EventTypeNormal, "Nominated", "Provisioning", "Pod should schedule on: nodeclaim/%s%s", claim, what)
		}
	}
}

func claimsOf(placements []plan.Placement) []string {
	var out []string
	seen := map[string]bool{}
	for _, pl := range placements {
		if c := pl.Node.Claim; c != "" && !seen[c] {
			seen[c] = true
			out = append(out, c)
		}
	}
	return out
}

func sumPrice(launches []plan.Launch) float64 {
	sum := 0.0
	for i := range launches {
		sum += launches[i].Price()
	}
	return sum
}

// explain is the message for a pod without a place: the nearest pool and the one reason that blocks it.
func explain(u plan.Unplaced) string {
	if u.Pool == "" {
		return "no node can be bought for the pod: " + u.Detail
	}
	return "no node can be bought for the pod; nearest NodePool \"" + u.Pool + "\": " + u.Detail
}
