// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/demand"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/provisioner/view"
)

// Room that buffers ask for is planned anew again and again, from the cluster as it is then: what fits into room that is
// there or on its way needs nothing, for the rest nodes are bought. Nothing has to be remembered, by this process or the
// next: a node that was bought is room on its way. Pods take the room as if the buffer were not there, and what they took is
// bought again. Only disruption must not take the room away: to it, it is used.

// Buffers are room that is to be kept free; demand.Buffers is one.
type Buffers interface {
	// Wanted returns all buffers. It may block for seconds.
	Wanted(ctx context.Context) []demand.Buffer
	// Tell takes what has become of a buffer.
	Tell(ctx context.Context, b demand.Buffer, k demand.Kept)
}

// BuffersAnnotation on a NodeClaim lists the CapacityBuffers (namespace/name, comma separated) it was bought for.
const BuffersAnnotation = "slipway.sh/capacity-buffers"

const (
	// bufferEvery is how often buffers are looked after, bufferPause the least time between two purchases for them: a pod takes
	// its room in its own time, and a launch that fails at once must not be repeated at once.
	bufferEvery = time.Second
	bufferPause = 5 * time.Second
)

// keepFree looks after the buffers until ctx ends.
func (p *Provisioner) keepFree(ctx context.Context) {
	tick := p.Clock.NewTicker(bufferEvery)
	defer tick.Stop()
	var bought time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.enough:
			return
		case <-tick.C():
		}
		buffers := p.Buffers.Wanted(ctx)
		if len(buffers) == 0 {
			p.setFree(nil)
			continue
		}
		kept, err := p.keep(ctx, buffers, &bought)
		if err != nil {
			log.FromContext(ctx).Error(err, "planning room for capacity buffers", "buffers", len(buffers))
			continue
		}
		for i, b := range buffers {
			p.Buffers.Tell(ctx, b, kept[i])
		}
	}
}

// keep plans the room of all buffers, buys what is missing unless something was bought a moment ago, and returns what became
// of each buffer. Pods do not wait for it: only when something is to be bought, it is planned once more with no other plan at work.
func (p *Provisioner) keep(ctx context.Context, buffers []demand.Buffer, bought *time.Time) ([]demand.Kept, error) {
	room, err := p.roomFor(ctx, buffers)
	if err != nil {
		return nil, err
	}
	if now := p.Clock.Now(); len(room.launches) > 0 && now.Sub(*bought) >= bufferPause {
		p.steps.Lock() // what pods are being bought for must be in sight
		defer p.steps.Unlock()
		if room, err = p.roomFor(ctx, buffers); err != nil {
			return nil, err
		}
		*bought = now
		for claim, pods := range p.buyRoom(ctx, room.launches, room.chunks, room.of, buffers) {
			room.free[claim] = pods
			for _, pod := range pods {
				room.kept[room.of[pod.UID]].Coming++
			}
		}
	}
	p.setFree(room.free)
	return room.kept, nil
}

// room is a plan for all chunks of all buffers.
type room struct {
	chunks   map[types.UID]*corev1.Pod
	of       map[types.UID]int // each chunk's buffer
	kept     []demand.Kept     // of each buffer, without what is bought
	free     map[string][]*corev1.Pod
	launches []plan.Launch
}

func (p *Provisioner) roomFor(ctx context.Context, buffers []demand.Buffer) (*room, error) {
	reserved := p.reserved()
	v, err := p.Views.Build(ctx, view.Pending{Claims: p.recentClaims(), Reserved: reserved})
	if err != nil {
		return nil, err
	}
	chunks, of := map[types.UID]*corev1.Pod{}, map[types.UID]int{}
	in := plan.Input{View: v}
	for i, b := range buffers {
		for _, pod := range b.Chunks {
			chunks[pod.UID], of[pod.UID] = pod, i
			in.Pods = append(in.Pods, p.Views.Pod(pod))
		}
	}
	result := Planner{Judge: p.Judge, Metrics: p.Metrics}.Solve(ctx, in, Pods{Wanting: chunks, Reserved: reserved, Class: p.classOf})
	kept, free := make([]demand.Kept, len(buffers)), map[string][]*corev1.Pod{}
	for _, pl := range result.Placements {
		k := &kept[of[pl.Pod.UID]]
		if pl.Node.Phase == capacity.Usable {
			k.There++
		} else {
			k.Coming++
		}
		if pl.Node.Claim != "" {
			free[pl.Node.Claim] = append(free[pl.Node.Claim], chunks[pl.Pod.UID])
		}
	}
	for _, u := range result.Unplaced {
		kept[of[u.Pod.UID]].Why = explain(u)
	}
	return &room{chunks: chunks, of: of, kept: kept, free: free, launches: result.Launches}, nil
}

// buyRoom buys the nodes of a plan for buffers and returns the chunks of each claim that was created.
func (p *Provisioner) buyRoom(ctx context.Context, launches []plan.Launch, chunks map[types.UID]*corev1.Pod, of map[types.UID]int, buffers []demand.Buffer) map[string][]*corev1.Pod {
	drafts := p.drafts(ctx, launches, chunks, nil, p.Clock.Now())
	places := map[string][]*corev1.Pod{}
	for _, d := range drafts {
		names := map[string]bool{}
		for _, pod := range d.places {
			names[buffers[of[pod.UID]].Key().String()] = true
		}
		a := d.claim.Annotations
		a[BuffersAnnotation] = strings.Join(slices.Sorted(maps.Keys(names)), ",")
		// It is for no pods, those to come included: nobody is to give it up because they do not come.
		delete(a, PodsAnnotation)
		delete(a, AheadAnnotation)
		delete(a, OfferedAnnotation)
		places[d.claim.Name] = d.places
	}
	out := map[string][]*corev1.Pod{}
	for _, c := range p.create(ctx, drafts) {
		out[c.Name] = places[c.Name]
		log.FromContext(ctx).Info("bought room for capacity buffers", "nodeClaim", c.Name, "buffers", c.Annotations[BuffersAnnotation], "chunks", len(out[c.Name]))
	}
	return out
}

// setFree notes the chunks that have their room on each claim.
func (p *Provisioner) setFree(free map[string][]*corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = free
}

// KeptFree reports whether room of buffers is on the claim's node.
func (p *Provisioner) KeptFree(claim string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.free[claim]) > 0
}

// promised are the pods every claim has to have room for, with the chunks of buffers: what disruption must leave.
func (p *Provisioner) promised() map[string][]*corev1.Pod {
	out := p.reserved()
	p.mu.Lock()
	defer p.mu.Unlock()
	return joined(out, p.free)
}

// joined are the pods of both, by claim. Neither is changed.
func joined(a, b map[string][]*corev1.Pod) map[string][]*corev1.Pod {
	if len(b) == 0 {
		return a
	}
	out := maps.Clone(a)
	for claim, pods := range b {
		out[claim] = slices.Concat(out[claim], pods)
	}
	return out
}
