// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"strconv"
	"sync"
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// A group waits for its claims, which come one after the other: for gatherFor after the last one, so that a slow API server
// or a person's client does not split it, and for gatherMost after the first.
const (
	gatherFor  = 100 * time.Millisecond
	gatherMost = time.Second
)

// arrivals are claims of other processes (replacements of interrupted or disrupted nodes) that have just appeared in the
// watch. They are launched without a look at EC2: a call that another process should have sent for them after all has the
// same token, and is answered rather than repeated.
type arrivals struct {
	l *Launcher

	mu     sync.Mutex
	groups map[string]*arrival
}

// arrival is the claims of one launch id that have come so far.
type arrival struct {
	claims      []*karpv1.NodeClaim
	first, last time.Time
}

// until is when the arrival has been waited for.
func (g *arrival) until() time.Time {
	quiet, most := g.last.Add(gatherFor), g.first.Add(gatherMost)
	if most.Before(quiet) {
		return most
	}
	return quiet
}

// add launches the claim, with its group once that is complete or has been waited for.
func (a *arrivals) add(ctx context.Context, c *karpv1.NodeClaim) {
	id, now := launchID(c), a.l.Clock.Now()
	size, known := groupSize(c)
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.groups[id]
	begins := g == nil
	if begins {
		g = &arrival{first: now}
		a.groups[id] = g
	}
	g.last = now
	g.claims = append(g.claims, c.DeepCopy())
	switch {
	case known && len(g.claims) >= size:
		a.launch(ctx, id, g)
	case begins:
		go a.expire(ctx, id, g)
	}
}

// groupSize is how many claims the claim's group has; not known if it is in a group and does not say.
func groupSize(c *karpv1.NodeClaim) (size int, known bool) {
	if c.Annotations[LaunchGroupAnnotation] == "" {
		return 1, true
	}
	n, err := strconv.Atoi(c.Annotations[capacity.LaunchGroupSizeAnnotation])
	return n, err == nil && n > 0
}

// expire launches what there is of a group when its time is up.
func (a *arrivals) expire(ctx context.Context, id string, g *arrival) {
	for wait := gatherFor; ; {
		select {
		case <-ctx.Done():
			return
		case <-a.l.Clock.After(wait):
		}
		a.mu.Lock()
		wait = g.until().Sub(a.l.Clock.Now())
		over := wait <= 0 || a.groups[id] != g
		if over && a.groups[id] == g {
			a.launch(ctx, id, g)
		}
		a.mu.Unlock()
		if over {
			return
		}
	}
}

// launch starts the group. The lock is held.
func (a *arrivals) launch(ctx context.Context, id string, g *arrival) {
	delete(a.groups, id)
	now := a.l.Clock.Now()
	for _, part := range groups(g.claims, false) {
		a.l.start(ctx, part, now, launched{})
	}
}
