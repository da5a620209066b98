// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/test/builder"
)

// fakeOwner is a ReplicaSet that wants some pods and has created some of them.
type fakeOwner struct {
	mu      sync.Mutex
	want    int
	created []*corev1.Pod
}

// scale changes how many pods the owner wants.
func (o *fakeOwner) scale(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.want = n
}

func (o *fakeOwner) Coming(context.Context, *corev1.Pod) (int, []types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var pending []types.UID
	for _, p := range o.created {
		if p.Spec.NodeName == "" {
			pending = append(pending, p.UID)
		}
	}
	return max(o.want-len(o.created), 0), pending
}

// create makes the next pods.
func (o *fakeOwner) create(n int, cpu string) []*corev1.Pod {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []*corev1.Pod
	for range n {
		p := pod(fmt.Sprintf("web-%d", len(o.created)), cpu)
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: new(true)}}
		o.created, out = append(o.created, p), append(out, p)
	}
	return out
}

// foresee has the bed look ahead for the owner.
func (b *bed) foresee(o *fakeOwner) {
	b.Owners, b.LookAhead = o, 1000
}

func (b *bed) seats() int {
	_, seats := b.ledger.counts()
	return seats
}

func TestLookAheadPlansForPodsThatAreComing(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		o := &fakeOwner{want: 30}
		b.foresee(o)
		b.run()
		b.offer(o.create(1, "1")...)
		claims, seats := len(b.written()), b.seats()
		if claims < 2 || seats != 29 {
			t.Fatalf("%d claims and %d seats after the first pod of 30, want room for all", claims, seats)
		}
		b.take()
		for i := range 29 {
			b.offer(o.create(1, "1")...)
			if got := b.seats(); got != 28-i {
				t.Fatalf("%d seats after pod %d, want %d", got, i+2, 28-i)
			}
		}
		if got := len(b.written()); got != claims {
			t.Errorf("%d claims when all pods are there, want the %d of the first plan", got, claims)
		}
		if n, _ := b.ledger.counts(); n[planned] != 30 {
			t.Errorf("pods by state: %v, want 30 planned", n)
		}
	})
}

func TestPodsThatWaitForTheirCycleAreSeated(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		o := &fakeOwner{want: 30}
		b.foresee(o)
		b.run()
		pods := o.create(10, "1")
		b.offer(pods[0])
		claims := len(b.written())
		if got := b.seats(); got != 29 {
			t.Errorf("%d seats, want one for each pod that exists and one for each that is coming", got)
		}
		b.offer(pods[1:]...)
		if got := len(b.written()); got != claims || b.seats() != 20 {
			t.Errorf("%d claims and %d seats once they have failed too, want %d and 20", got, b.seats(), claims)
		}
	})
}

func TestSeatsOnAUsableNodeReleaseTheirPodsAtOnce(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		o := &fakeOwner{want: 3}
		b.foresee(o)
		b.run()
		b.offer(o.create(1, "1")...)
		b.launched(b.claim(), builder.Node("n1").CPU("4").Memory("16Gi"))
		b.take()
		b.offer(o.create(1, "1")...)
		b.did("a pod whose cycle did not see the node yet", "event web-1 Normal Nominated ", "reserve web-1 on n1", "nominate web-1 on n1", "reserve web-1 on n1", "release web-1")
		b.pass(bindGrace)
		b.offer(o.create(1, "1")...)
		if got := len(b.written()); got != 2 {
			t.Errorf("%d claims, want a second one: the pod fails although its seat is on a node that has been usable for long", got)
		}
	})
}

func TestSeatsThatAreNotWantedAreGivenUp(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(o *fakeOwner)
		wait   time.Duration
		seats  int
		claims int
	}{
		"scaled down":                 {func(o *fakeOwner) { o.scale(10) }, 25 * time.Second, 9, 3},
		"scaled down to what is here": {func(o *fakeOwner) { o.scale(1) }, 25 * time.Second, 0, 1},
		"too early to cancel":         {func(o *fakeOwner) { o.scale(1) }, 5 * time.Second, 0, 8},
		"silent":                      {func(*fakeOwner) {}, patience + 25*time.Second, 0, 1},
		"created, not failed yet":     {func(o *fakeOwner) { o.create(5, "1") }, 25 * time.Second, 29, 8},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bed) {
				b.cluster.Sell(builder.DefaultClass, builder.Catalog(builder.InstanceType("m5.xlarge").CPU("4").Memory("16Gi").OnDemand(0.2, "a", "b")))
				o := &fakeOwner{want: 30}
				b.foresee(o)
				b.run()
				b.offer(o.create(1, "1")...)
				if got := len(b.written()); got != 8 {
					t.Fatalf("%d claims for 30 pods of a core on nodes of four, want 8", got)
				}
				tt.change(o)
				b.pass(tt.wait)
				if seats, claims := b.seats(), len(b.live()); seats != tt.seats || claims != tt.claims {
					t.Errorf("%d seats and %d claims, want %d and %d", seats, claims, tt.seats, tt.claims)
				}
			})
		})
	}
}

// pool is the bed's NodePool.
func (b *bed) pool() *karpv1.NodePool {
	b.t.Helper()
	np := &karpv1.NodePool{}
	if err := b.api.Get(b.t.Context(), types.NamespacedName{Name: "p"}, np); err != nil {
		b.t.Fatal(err)
	}
	return np
}

func TestPodThatLostItsPlaceIsPlannedAgainAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		lands *corev1.Pod
		want  int
	}{
		"nothing has happened":       {nil, 1},
		"a stranger landed":          {builder.Pod("stranger").UID("stranger").CPU("3").On("n1").Obj(), 2},
		"elsewhere":                  {builder.Pod("stranger").UID("stranger").CPU("3").On("n2").Obj(), 1},
		"a daemonset's pod":          {ownedBy("DaemonSet", builder.Pod("agent").UID("agent").CPU("3").On("n1").Obj()), 1},
		"another pod that has found": {builder.Pod("y").UID("y").CPU("1").On("n1").Obj(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bed) {
				b.run()
				b.offer(pod("x", "1"), pod("y", "1"))
				b.launched(b.claim(), builder.Node("n1").CPU("4").Memory("16Gi"))
				b.cluster.Put(builder.Node("n2").CPU("4").Memory("16Gi").Obj())
				if tt.lands != nil {
					b.onPod(b.ctx, tt.lands, false, true)
				}
				b.offer(pod("x", "1"))
				if got := len(b.written()); got != tt.want {
					t.Errorf("%d claims, want %d", got, tt.want)
				}
			})
		})
	}
}

func TestPodThatFindsItsOwnersNodeTakesASeatThere(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		o := &fakeOwner{want: 3}
		b.foresee(o)
		b.run()
		b.offer(o.create(1, "1")...)
		b.launched(b.claim(), builder.Node("n1").CPU("4").Memory("16Gi"))
		p := o.create(1, "1")[0]
		p.Spec.NodeName = "n1"
		b.onPod(b.ctx, p, false, true)
		if got := b.seats(); got != 1 {
			t.Errorf("%d seats when one pod is parked, one bound and one to come, want 1", got)
		}
	})
}

func ownedBy(kind string, p *corev1.Pod) *corev1.Pod {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "o", UID: "o", Controller: new(true)}}
	return p
}

// live are the claims that are not being deleted.
func (b *bed) live() (out []string) {
	for _, c := range b.written() {
		if c.DeletionTimestamp.IsZero() {
			out = append(out, c.Name)
		}
	}
	return out
}

func TestSilentOwnerIsNotTrustedAgainSoon(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		o := &fakeOwner{want: 30}
		b.foresee(o)
		b.run()
		b.offer(o.create(1, "1")...)
		b.pass(patience + 2*sweepEvery)
		b.offer(o.create(1, "3500m")...)
		if got := b.seats(); got != 0 {
			t.Errorf("%d seats for an owner that let its last ones go stale", got)
		}
		b.pass(distrust + patience)
		b.offer(o.create(1, "3500m")...)
		if got := b.seats(); got == 0 {
			t.Error("no seats long after")
		}
	})
}

func TestPoolBoundsLookAhead(t *testing.T) {
	for name, tt := range map[string]struct {
		pods  *int
		seats int
	}{
		"no bound": {nil, 29},
		"none":     {new(0), 0},
		"a few":    {new(7), 7},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bed) {
				o := &fakeOwner{want: 30}
				b.foresee(o)
				np := b.pool()
				if tt.pods != nil {
					np.Annotations = map[string]string{"slipway.sh/look-ahead": fmt.Sprint(*tt.pods)}
				}
				if err := b.api.Update(t.Context(), np); err != nil {
					t.Fatal(err)
				}
				b.run()
				b.offer(o.create(1, "1")...)
				if got := b.seats(); got != tt.seats {
					t.Errorf("%d seats, want %d", got, tt.seats)
				}
			})
		})
	}
}

// TestPoolBoundsLookAheadOfAllSteps checks that seats which are there already count, and those on nodes on their way.
func TestPoolBoundsLookAheadOfAllSteps(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		o := &fakeOwner{want: 30}
		b.foresee(o)
		np := b.pool()
		np.Annotations = map[string]string{"slipway.sh/look-ahead": "3"}
		if err := b.api.Update(t.Context(), np); err != nil {
			t.Fatal(err)
		}
		b.run()
		for i := range 4 {
			// Each is of a shape of its own and takes no seat of the others.
			b.offer(o.create(1, fmt.Sprintf("%dm", 1000+i))...)
			if got := b.seats(); got != 3 {
				t.Errorf("%d seats after %d steps, want 3", got, i+1)
			}
		}
	})
}

func TestOtherPodsOfTheOwnerTakeNoSeat(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		o := &fakeOwner{want: 4}
		b.foresee(o)
		b.run()
		b.offer(o.create(1, "1")...)
		b.take()
		b.offer(o.create(1, "3")...)
		if got := b.seats(); got != 3 {
			t.Errorf("%d seats: a pod that looks different took one", got)
		}
	})
}

func TestLostClaimIsPlannedAgainWithItsSeats(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		o := &fakeOwner{want: 3}
		b.foresee(o)
		b.run()
		b.offer(o.create(1, "1")...)
		first := b.claim()
		if err := b.api.Delete(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		b.onClaim(b.ctx, first, true)
		b.Drained()
		b.pass(10 * time.Millisecond)
		if seats, claims := b.seats(), b.live(); seats != 2 || len(claims) != 1 || claims[0] == first.Name {
			t.Errorf("%d seats, claims %v; want 2 on a new claim", seats, claims)
		}
	})
}

func TestClaimOfDeletedPodsIsCancelled(t *testing.T) {
	for name, tt := range map[string]struct {
		node *builder.NodeBuilder
		want int
	}{
		"before it has a node":    {nil, 0},
		"while its node boots":    {builder.Node("n1").CPU("4").Memory("16Gi").NotReady(), 0},
		"once its node is usable": {builder.Node("n1").CPU("4").Memory("16Gi"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bed) {
				b.run()
				x := pod("x", "1")
				b.offer(x)
				if tt.node != nil {
					b.launched(b.claim(), tt.node)
				}
				b.onPod(b.ctx, x, true, true)
				b.pass(cancelAfter + 3*sweepEvery)
				if got := len(b.live()); got != tt.want {
					t.Errorf("%d claims, want %d", got, tt.want)
				}
			})
		})
	}
}

var _ Owners = (*fakeOwner)(nil)
