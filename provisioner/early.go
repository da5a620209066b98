// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/demand"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/provisioner/view"
)

// A node that is full does not become a better buy by what else comes, so it is launched while its batch is still open. What
// would become a better buy is left alone: the plan is made as if the pods that are still queued were like those that have
// come, and of its nodes only those leave that none of the imagined pods is on.

// mostImagined bounds the imagined pods of a look. More of them would not show better shapes, as no node holds many more pods.
const mostImagined = 512

// early looks at a batch that is still open and launches the nodes that are full already. Everything else about its pods waits
// for the batch to close.
func (p *Provisioner) early(ctx context.Context, batch demand.Batch) {
	defer p.plans(batch.Pods)() // before the lock: a batch that waits for another plan is not forgotten
	p.steps.Lock()
	defer p.steps.Unlock()
	start := p.Clock.Now()
	waiting, offered := p.ledger.waiting(batch.Pods)
	waiting = p.settle(ctx, waiting)
	reserved := p.reserved()
	v, err := p.Views.Build(ctx, view.Pending{Claims: p.recentClaims(), Reserved: reserved})
	if err != nil || loading(v) {
		return // the batch will tell when it closes
	}
	pods := make(map[types.UID]*corev1.Pod, len(waiting))
	in := plan.Input{View: v, OnlyInFlight: true}
	for _, pod := range waiting {
		if pod.Spec.SchedulingGroup != nil {
			continue // with its group or not at all
		}
		q := p.Views.Pod(pod)
		if len(q.Class.Affinity) > 0 {
			return // it may want to be with any of the others
		}
		pods[pod.UID] = pod
		in.Pods = append(in.Pods, q)
	}
	if len(in.Pods) == 0 {
		return
	}
	seats := p.lookAhead(ctx, in.Pods, pods)
	viewed := p.Clock.Now()
	result := p.full(ctx, in, Pods{Wanting: pods, Reserved: reserved, Class: p.classOf}, seats, batch.Queued)
	solved := p.Clock.Now()
	for _, l := range result.Launches {
		for _, q := range l.Pods {
			p.batch.Remove(q.UID) // before the claim is written: if it cannot be, its pods come back
		}
	}
	created := p.create(ctx, p.drafts(ctx, result.Launches, pods, offered, solved))
	if len(created) > 0 {
		log.FromContext(ctx).Info("launched the full nodes of an open batch", "batch", len(waiting), "queued", batch.Queued, "launches", len(created),
			"price", sumPrice(result.Launches), "view", viewed.Sub(start), "plan", solved.Sub(viewed), "claims", p.Clock.Since(solved))
	}
}

// full plans the pods, the seats and as many imagined pods as are queued, and returns the launches that may leave. They are
// judged; the seats on them are entered into the ledger.
func (p *Provisioner) full(ctx context.Context, in plan.Input, pods Pods, seats []seat, queued int) plan.Result {
	there := in.Pods
	for {
		in.Pods = slices.Concat(there, imagined(there, queued-len(seats)))
		for _, s := range seats {
			pods.Wanting[s.pod.UID] = s.pod
			in.Pods = append(in.Pods, s.plan)
		}
		var result plan.Result
		for _, l := range plan.Solve(in).Launches {
			if leavesEarly(l, pods.Wanting) {
				result.Launches = append(result.Launches, l)
			}
		}
		kept, changed := bounded(in.View, &result, seats, p.ledger.seatsByPool())
		if !changed {
			return p.expect(p.upheld(ctx, in.View, result, pods), seats)
		}
		seats = kept
	}
}

// imagined are n pods like those, each kind in its share and at most [mostImagined], that come after them in every order.
func imagined(like []*capacity.Pod, n int) []*capacity.Pod {
	n = min(n, mostImagined)
	out := make([]*capacity.Pod, 0, max(n, 0))
	for i := range n {
		q := *like[i*len(like)/n]
		// A UID of the API consists of digits and letters, which sort before this.
		q.UID = types.UID(fmt.Sprintf("~imagined/%d", i))
		out = append(out, &q)
	}
	return out
}

// leavesEarly reports whether a launch is of pods that are there or certain to come, is bound by no rule about where other
// pods are, and holds no further pod like any of its own.
func leavesEarly(l plan.Launch, wanting map[types.UID]*corev1.Pod) bool {
	room := l.Offerings[0].Type.Allocatable
	var last *capacity.Class
	for _, q := range l.Pods {
		if wanting[q.UID] == nil {
			return false
		}
		c := q.Class
		if c == last {
			continue
		}
		if last = c; len(c.Spread)+len(c.AntiAffinity) > 0 || l.Requests.Add(c.Requests).Fits(room) {
			return false
		}
	}
	return true
}

// upheld leaves out the launches of which the judge refuses a pod: they wait for the batch, whose plan is made again then.
func (p *Provisioner) upheld(ctx context.Context, v *capacity.View, r plan.Result, pods Pods) plan.Result {
	if p.Judge == nil || len(r.Launches) == 0 {
		return r
	}
	nodes, trials := hypotheses(v, &r, pods)
	refusals, err := p.Judge.Verify(ctx, nodes, trials)
	if err != nil {
		log.FromContext(ctx).Error(err, "judging the full nodes of an open batch; they wait for it to close", "launches", len(r.Launches))
		return plan.Result{}
	}
	refused := make(map[types.UID]bool, len(refusals))
	for _, f := range refusals {
		refused[f.Pod.UID] = true
	}
	r.Launches = slices.DeleteFunc(r.Launches, func(l plan.Launch) bool {
		return slices.ContainsFunc(l.Pods, func(q *capacity.Pod) bool { return refused[q.UID] })
	})
	return r
}
