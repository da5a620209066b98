// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package interruption

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// StatusReader lists instances that are not well; [ec2.Client] is one.
type StatusReader interface {
	InstancesInTrouble(ctx context.Context) ([]ec2.InstanceTrouble, error)
}

const (
	// pollEvery is how often EC2 is asked (Karpenter's interval), pollForbidden how often while the role may not ask.
	pollEvery     = time.Minute
	pollForbidden = time.Hour
	// failingFor is how long a check has to fail before its instance is given up (Karpenter's threshold): checks flap.
	failingFor = 2 * time.Minute
)

// Poller asks EC2 about instance status and scheduled events.
type Poller struct {
	reactor *Reactor
	reader  StatusReader
	// seen are the troubles that were counted already.
	seen map[string]bool
}

// NewPoller returns a poller.
func NewPoller(r *Reactor, reader StatusReader) *Poller {
	return &Poller{reactor: r, reader: reader, seen: map[string]bool{}}
}

// NeedLeaderElection says that only the leader reacts.
func (p *Poller) NeedLeaderElection() bool { return true }

// Start polls until ctx ends; it is a manager's Runnable.
func (p *Poller) Start(ctx context.Context) error {
	for {
		wait := pollEvery
		if err := p.poll(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "polling instance status")
			if capacity.KindOf(err) == capacity.Unauthorized {
				wait = pollForbidden
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.reactor.Clock.After(wait):
		}
	}
}

// poll asks once and reacts to all troubles at the same time: they often have one cause, and what they hit is replaced
// together. One instance's failure does not keep the others from being dealt with.
func (p *Poller) poll(ctx context.Context) error {
	troubles, err := p.reader.InstancesInTrouble(ctx)
	if err != nil {
		return err
	}
	now := p.reactor.Clock.Now()
	var mu sync.Mutex
	seen := map[string]bool{}
	var first error
	var wg sync.WaitGroup
	for _, t := range troubles {
		kind, category := judge(t, now)
		if kind == None {
			continue
		}
		wg.Go(func() {
			ours, err := p.reactor.react(ctx, notice{kind: kind, instances: []string{t.ID}, at: now})
			mu.Lock()
			defer mu.Unlock()
			if err != nil && first == nil {
				first = fmt.Errorf("reacting to the status of instance %q: %w", t.ID, err)
			}
			if ours {
				seen[t.ID+"/"+category] = true
			}
		})
	}
	wg.Wait()
	for key := range seen {
		if !p.seen[key] {
			_, category, _ := strings.Cut(key, "/")
			p.reactor.Metrics.Unhealthy.WithLabelValues(category).Inc()
		}
	}
	p.seen = seen
	return first
}

// judge says what a trouble amounts to, with the category of Karpenter's metric.
func judge(t ec2.InstanceTrouble, now time.Time) (kind Kind, category string) {
	failing := func(since time.Time) bool { return !since.IsZero() && now.Sub(since) >= failingFor }
	switch {
	case failing(t.Instance):
		return InstanceStatus, "InstanceStatus"
	case failing(t.System):
		return SystemStatus, "SystemStatus"
	case t.Event != "":
		return EventStatus, "EventStatus"
	}
	return None, ""
}
