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

// gatherFor is how long the first claim of a group waits for the others: they are written at the same time and come one
// after the other.
const gatherFor = 50 * time.Millisecond

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
	claims []*karpv1.NodeClaim
}

// add launches the claim, with its group once that is complete or has been waited for.
func (a *arrivals) add(ctx context.Context, c *karpv1.NodeClaim) {
	id, size := launchID(c), groupSize(c)
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.groups[id]
	if g == nil {
		g = &arrival{}
		a.groups[id] = g
		if size > 1 {
			go a.expire(ctx, id, g)
		}
	}
	g.claims = append(g.claims, c.DeepCopy())
	if len(g.claims) >= size {
		a.launch(ctx, id, g)
	}
}

// groupSize is how many claims the claim's group has as far as it says.
func groupSize(c *karpv1.NodeClaim) int {
	n, err := strconv.Atoi(c.Annotations[capacity.LaunchGroupSizeAnnotation])
	if err != nil || c.Annotations[LaunchGroupAnnotation] == "" {
		return 1
	}
	return n
}

// expire launches what there is of a group when its time is up.
func (a *arrivals) expire(ctx context.Context, id string, g *arrival) {
	select {
	case <-ctx.Done():
		return
	case <-a.l.Clock.After(gatherFor):
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.groups[id] == g {
		a.launch(ctx, id, g)
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
