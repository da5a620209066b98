// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/provisioner/view"
)

// A parked pod sees nothing of what happens in the cluster. If room for it comes free on a node that is there, it need not
// wait for its own: it gets a scheduling cycle, and the claim that nobody needs then is cancelled. The scheduler decides;
// what is found out here is a hint, good enough not to wake pods in vain.

// freed are the nodes on which room has come free.
type freed struct {
	mu    sync.Mutex
	nodes map[string]bool
	// open are the nodes of others that pods can go to.
	open map[string]bool
	wake chan struct{}
}

func newFreed() *freed {
	return &freed{nodes: map[string]bool{}, open: map[string]bool{}, wake: make(chan struct{}, 1)}
}

// note notes that a pod has gone from the node.
func (f *freed) note(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes[node] = true
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// node notes a node that Slipway did not buy: when it opens for pods, all of it is room that has come free.
func (f *freed) node(n *corev1.Node, deleted bool) {
	open := !deleted && !n.Spec.Unschedulable && view.Ready(n)
	f.mu.Lock()
	was := f.open[n.Name]
	if open {
		f.open[n.Name] = true
	} else {
		delete(f.open, n.Name)
	}
	f.mu.Unlock()
	if open && !was {
		f.note(n.Name)
	}
}

// take returns the nodes noted so far and forgets them.
func (f *freed) take() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.nodes
	f.nodes = map[string]bool{}
	return out
}

// refillAfter is how long freed room is collected before it is given out: a Deployment that is scaled down frees room pod by
// pod.
const refillAfter = 50 * time.Millisecond

// refill lets parked pods go for which room has come free, until ctx ends.
func (p *Provisioner) refill(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.freed.wake:
		}
		timer := p.Clock.NewTimer(refillAfter)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		if uids := p.fitting(ctx, p.freed.take()); len(uids) > 0 {
			log.FromContext(ctx).V(1).Info("room has come free for pods that wait for nodes", "pods", len(uids))
			p.Gate.Release(uids...)
		}
	}
}

// fitting are the pods waiting for nodes on their way, or refused, that fit on the given nodes. Rules that look at other nodes (spreading,
// affinity) are left to the scheduler.
func (p *Provisioner) fitting(ctx context.Context, nodes map[string]bool) []types.UID {
	pods := p.ledger.unsettled()
	if len(pods) == 0 || len(nodes) == 0 {
		return nil
	}
	v, err := p.Views.Build(ctx, view.Pending{Claims: p.recentClaims(), Reserved: p.ledger.reserved()})
	if err != nil {
		log.FromContext(ctx).Error(err, "looking for room that has come free")
		return nil
	}
	var there []*capacity.Node
	for _, n := range v.Nodes {
		if nodes[n.Name] && n.Name != "" && n.Phase == capacity.Usable {
			there = append(there, n)
		}
	}
	if len(there) == 0 {
		return nil
	}
	in := plan.Input{View: &capacity.View{Nodes: there}}
	for _, pod := range pods {
		if p.serves(pod) {
			continue // its scheduler sees for itself
		}
		q := p.Views.Pod(pod)
		if slices.ContainsFunc(there, func(n *capacity.Node) bool { return q.Class.Requests.Fits(n.Free()) }) {
			in.Pods = append(in.Pods, q)
		}
	}
	var out []types.UID
	for _, pl := range plan.Solve(in).Placements {
		out = append(out, pl.Pod.UID)
	}
	return out
}

// unsettled returns the pods that wait for a node which is not usable yet and those that no node can be had for, most important
// first, then those that have waited longest.
func (l *ledger) unsettled() []*corev1.Pod {
	var entries []entry
	for _, e := range l.all() {
		if e.state == unplaced || e.state == planned && e.usable.IsZero() {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(priority(b.pod), priority(a.pod)), a.offered.Compare(b.offered))
	})
	out := make([]*corev1.Pod, len(entries))
	for i, e := range entries {
		out[i] = e.pod
	}
	return out
}
