// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// SubnetFinder asks EC2 for the subnets of a node class, free addresses included.
type SubnetFinder interface {
	Subnets(ctx context.Context, terms []v1.SubnetSelectorTerm) ([]ec2.Subnet, error)
}

const (
	// subnetRefresh is how often free addresses are asked for (Karpenter's subnet refresh interval).
	subnetRefresh = time.Minute
	// subnetSettle is how long a node takes to hold the addresses that were booked for it, so that EC2 counts them.
	subnetSettle = 2 * time.Minute
	// subnetFull is how long a subnet EC2 called full is left alone (Karpenter's cache of unavailable offerings).
	subnetFull = 3 * time.Minute
)

// Subnets knows how many addresses are free in each subnet and books those of nodes on their way. Asking it never waits.
type Subnets struct {
	finder SubnetFinder
	kube   client.Reader
	clock  clock.Clock

	mu     sync.Mutex
	free   map[string]int64
	booked map[string][]*booking
	full   map[string]time.Time // until when
}

// booking is addresses that nodes launched at an instant will take.
type booking struct {
	addresses int64
	until     time.Time
}

// NewSubnets returns an empty book; until the first refresh all subnets count as equally free. kube lists EC2NodeClasses
// from a cache.
func NewSubnets(finder SubnetFinder, kube client.Reader, clk clock.Clock) *Subnets {
	return &Subnets{finder: finder, kube: kube, clock: clk, free: map[string]int64{}, booked: map[string][]*booking{}, full: map[string]time.Time{}}
}

// Run refreshes the free addresses of the subnets of all classes every minute, until ctx ends.
func (s *Subnets) Run(ctx context.Context) {
	for {
		s.refresh(ctx)
		select {
		case <-ctx.Done():
			return
		case <-s.clock.After(subnetRefresh):
		}
	}
}

// refresh asks once for every class. A class whose subnets cannot be listed keeps its numbers.
func (s *Subnets) refresh(ctx context.Context) {
	var classes v1.EC2NodeClassList
	if err := s.kube.List(ctx, &classes); err != nil {
		log.FromContext(ctx).Error(err, "listing node classes for their subnets")
		return
	}
	for i := range classes.Items {
		found, err := s.finder.Subnets(ctx, classes.Items[i].Spec.SubnetSelectorTerms)
		if err != nil {
			log.FromContext(ctx).V(1).Info("free subnet addresses are unknown", "nodeClass", classes.Items[i].Name, "reason", err.Error())
			continue
		}
		s.mu.Lock()
		for _, sub := range found {
			s.free[sub.ID] = int64(sub.FreeAddresses)
		}
		s.mu.Unlock()
	}
}

// pick returns, for each zone of the class, the subnet with most free addresses, the smallest id if several have. Zones
// whose subnets are all full are left out.
func (s *Subnets) pick(class *v1.EC2NodeClass) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	type choice struct {
		id   string
		free int64
	}
	best := map[string]choice{}
	for _, sub := range slices.SortedFunc(slices.Values(class.Status.Subnets), func(a, b v1.Subnet) int { return strings.Compare(a.ID, b.ID) }) {
		// Bookings order the choice and close nothing: they are what nodes may take at the most.
		if free, known := s.free[sub.ID]; known && free <= 0 || now.Before(s.full[sub.ID]) {
			continue
		}
		c := choice{id: sub.ID, free: s.left(sub.ID, now)}
		if have, ok := best[sub.Zone]; !ok || cmp.Compare(c.free, have.free) > 0 {
			best[sub.Zone] = c
		}
	}
	out := make(map[string]string, len(best))
	for zone, c := range best {
		out[zone] = c.id
	}
	return out
}

func (s *Subnets) left(id string, now time.Time) int64 {
	free := s.free[id]
	for _, b := range s.booked[id] {
		if now.Before(b.until) {
			free -= b.addresses
		}
	}
	return free
}

// book takes addresses off a subnet until EC2 counts them itself, or unbook gives them back.
func (s *Subnets) book(id string, addresses int64) *booking {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	b := &booking{addresses: addresses, until: now.Add(subnetSettle)}
	s.booked[id] = append(slices.DeleteFunc(s.booked[id], func(b *booking) bool { return !now.Before(b.until) }), b)
	return b
}

// unbook gives addresses back that were booked but not used. A booking that has run out is given back already.
func (s *Subnets) unbook(id string, b *booking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.booked[id] = slices.DeleteFunc(s.booked[id], func(have *booking) bool { return have == b })
}

// exhausted notes that EC2 called the subnet full.
func (s *Subnets) exhausted(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full[id] = s.clock.Now().Add(subnetFull)
}
