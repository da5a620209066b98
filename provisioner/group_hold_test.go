// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/test/builder"
)

// of is the claim that was bought for the member.
func (b *bed) of(member string) *karpv1.NodeClaim {
	b.t.Helper()
	for _, c := range b.written() {
		if c.Annotations[PodsAnnotation] == "default/"+member {
			return c
		}
	}
	b.t.Fatalf("no claim for %s", member)
	return nil
}

// expectFailure has the group's members fail together and checks whether they are parked and how many claims there are then.
func (b *bed) expectFailure(when string, least int, parked bool, claims int, pods ...*corev1.Pod) {
	b.t.Helper()
	if got := b.failTogether("", least, pods...); got != parked {
		b.t.Errorf("%s: parked: %v, want %v", when, got, parked)
	}
	if got := len(b.live()); got != claims {
		b.t.Errorf("%s: %d claims, want %d", when, got, claims)
	}
}

// TestGroupKeepsItsNodesWhileOneIsLate checks that members whose node is usable wait for the others', however long that
// takes, and that the time they have to bind begins when they all may.
func TestGroupKeepsItsNodesWhileOneIsLate(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		pods := b.offerGroup(2, 2)
		b.arrive(b.of("t-0"), "n0")
		b.pass(3 * bindGrace)
		b.expectFailure("the gate's deadline has opened it", 2, true, 2, pods...)
		b.arrive(b.of("t-1"), "n1")
		if got := b.released(); got != "t-0 t-1" {
			t.Errorf("released %q, want both", got)
		}
		b.expectFailure("something is in the way", 2, false, 2, pods...)
		b.pass(bindGrace)
		b.expectFailure("it still is", 2, true, 4, pods...)
	})
}

// TestGroupIsTakenOverTogether checks that a new process lets nobody go before the nodes of all are usable.
func TestGroupIsTakenOverTogether(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		pods := b.offerGroup(2, 2)
		for _, c := range b.written() {
			c.CreationTimestamp.Time = builder.Epoch().Add(time.Minute)
			if err := b.api.Update(b.ctx, c); err != nil {
				t.Fatal(err)
			}
		}
		b.arrive(b.of("t-0"), "n0")
		b.take()

		b.Provisioner = b.process(nil) // the old process is gone
		b.run()
		if got := b.released(); got != "" {
			t.Errorf("released %q before the other node is usable", got)
		}
		b.pass(2 * bindGrace)
		b.expectFailure("its first cycle in the new process", 2, true, 2, pods...)
		b.arrive(b.of("t-1"), "n1")
		if got := b.released(); got != "t-0 t-1" {
			t.Errorf("released %q, want both", got)
		}
	})
}

// TestMemberOfATakenOverGroupThatFailsAlone checks that nobody waits for others whom nothing keeps together any more.
func TestMemberOfATakenOverGroupThatFailsAlone(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		for _, name := range []string{"t-0", "t-1"} {
			p := member(name)
			b.cluster.Put(p)
			c := builder.NodeClaim("c-"+name).UID("c-"+name).Pool("p").Annotation(PodsAnnotation, "default/"+name).Created(builder.Epoch().Add(time.Hour)).Obj()
			if err := b.api.Create(b.ctx, c); err != nil {
				t.Fatal(err)
			}
		}
		b.run()
		b.Offer(member("t-0"), nil)
		b.arrive(b.of("t-0"), "n0")
		if got := b.released(); got != "t-0" {
			t.Errorf("released %q, want t-0", got)
		}
	})
}

// TestGroupIsLetGoWhenNoNodeIsAwaitedAnyMore checks that the end of the last member whose node is awaited frees the others.
func TestGroupIsLetGoWhenNoNodeIsAwaitedAnyMore(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		b.offerGroup(2, 3)
		b.arrive(b.of("t-0"), "n0")
		b.arrive(b.of("t-1"), "n1")
		if got := b.released(); got != "" {
			t.Errorf("released %q, want nobody yet", got)
		}
		b.end(member("t-2"))
		b.pass(2 * sweepEvery)
		if got := b.released(); got != "t-0 t-1" {
			t.Errorf("released %q, want the two that are left", got)
		}
		b.pass(10 * sweepEvery)
		if got := b.released(); got != "" {
			t.Errorf("released %q again", got)
		}
	})
}

// TestGroupThatItsNodesRefuse checks that a group which cannot use its nodes does not get one set of them after the other.
func TestGroupThatItsNodesRefuse(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		pods := b.offerGroup(2, 2)
		arriveAll := func(round string) {
			for i, c := range b.written() {
				if c.Status.NodeName == "" {
					b.arrive(c, fmt.Sprintf("%s-%d", round, i))
				}
			}
			b.pass(bindGrace)
		}
		arriveAll("first")
		b.expectFailure("once", 2, true, 4, pods...)
		arriveAll("second")
		b.expectFailure("twice", 2, false, 4, pods...)
		b.Changed()
		b.pass(time.Minute)
		b.expectFailure("a pool has changed", 2, false, 4, pods...)
		b.expectFailure("a further member has come", 2, true, 4, append(pods, member("t-2"))...)
		b.pass(spurnedFirst)
		if got := len(b.live()); got <= 4 {
			t.Errorf("%d claims after a long time, want new ones", got)
		}
	})
}

// TestMembersAreRetriedTogether checks that a member that is new, and those that were refused before it came, are planned at
// one time: each alone is never enough.
func TestMembersAreRetriedTogether(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		b.cluster.Sell(builder.DefaultClass, builder.Catalog()) // sold out
		pods := b.offerGroup(2, 2)
		b.pass(time.Minute)
		b.end(pods[1])
		b.cluster.Sell(builder.DefaultClass, shop())
		b.expectFailure("one member is new", 2, true, 2, pods[0], member("t-2"))
	})
}

// TestRefusedMembersComeDueTogether checks that members which were refused at different times are planned again at one time.
func TestRefusedMembersComeDueTogether(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		b.cluster.Sell(builder.DefaultClass, builder.Catalog()) // sold out
		pods := b.offerGroup(2, 2)
		b.pass(firstRetry / 2)
		b.end(pods[1])
		b.failTogether("", 2, member("t-2")) // the others are behind a gate of somebody else's
		b.cluster.Sell(builder.DefaultClass, shop())
		b.pass(2 * firstRetry)
		if got := len(b.live()); got != 2 {
			t.Errorf("%d claims, want one for each", got)
		}
	})
}
