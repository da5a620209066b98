// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package interruption

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// Reservations describes capacity reservations; [ec2.Client] does. Those that are over are left out.
type Reservations interface {
	ReservationsByID(ctx context.Context, ids []string) ([]ec2.Reservation, error)
}

const (
	// blocksEvery is how often the ends of capacity blocks are looked at (Karpenter's interval).
	blocksEvery = time.Minute
	// blockTaken is how long before the end of a capacity block EC2 begins to end its instances (EC2 user guide, "Capacity
	// Blocks for ML"). The block counts as ending ten minutes before that (Karpenter's margin), which is the time to drain.
	blockTaken = 30 * time.Minute
)

// BlockWatcher has the nodes of a capacity block replaced and drained before EC2 takes them: no notice comes in time for it.
type BlockWatcher struct {
	reactor      *Reactor
	reservations Reservations
}

// NewBlockWatcher returns a watcher.
func NewBlockWatcher(r *Reactor, reservations Reservations) *BlockWatcher {
	return &BlockWatcher{reactor: r, reservations: reservations}
}

// NeedLeaderElection says that only the leader reacts.
func (b *BlockWatcher) NeedLeaderElection() bool { return true }

// Start looks periodically until ctx ends; it is a manager's Runnable.
func (b *BlockWatcher) Start(ctx context.Context) error {
	for {
		if err := b.look(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "looking when capacity blocks end")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-b.reactor.Clock.After(blocksEvery):
		}
	}
}

// look reacts to every block that is about to end, all its instances at once: what they hit is replaced together. EC2 is asked
// only while there are nodes in blocks.
func (b *BlockWatcher) look(ctx context.Context) error {
	instances, err := b.inBlocks(ctx)
	if err != nil || len(instances) == 0 {
		return err
	}
	found, err := b.reservations.ReservationsByID(ctx, slices.Sorted(maps.Keys(instances)))
	if err != nil {
		return fmt.Errorf("describing the capacity blocks of nodes: %w", err)
	}
	var first error
	for _, r := range found {
		if r.State != v1.CapacityReservationStateExpiring || r.EndTime == nil {
			continue
		}
		n := notice{kind: BlockEnding, instances: instances[r.ID], at: b.reactor.Clock.Now(), until: r.EndTime.Add(-blockTaken)}
		if _, err := b.reactor.react(ctx, n); err != nil && first == nil {
			first = fmt.Errorf("reacting to the end of capacity block %q: %w", r.ID, err)
		}
	}
	return first
}

// inBlocks returns the instances of claims that run in capacity blocks, by reservation.
func (b *BlockWatcher) inBlocks(ctx context.Context) (map[string][]string, error) {
	var claims karpv1.NodeClaimList
	if err := b.reactor.Kube.List(ctx, &claims, client.MatchingLabels{v1.LabelCapacityReservationType: string(v1.CapacityReservationTypeCapacityBlock)}); err != nil {
		return nil, fmt.Errorf("listing the NodeClaims in capacity blocks: %w", err)
	}
	out := map[string][]string{}
	for i := range claims.Items {
		c := &claims.Items[i]
		id := c.Labels[v1.LabelCapacityReservationID]
		if id == "" || c.DeletionTimestamp != nil || !capacity.Managed(c.Spec.NodeClassRef) {
			continue
		}
		out[id] = append(out[id], InstanceIDOf(c)...)
	}
	return out, nil
}
