// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
)

// standBy replaces the bed's process by one that has stood by until now. Its cache shows no claims before shows is true.
func (b *bed) standBy(shows *atomic.Bool) {
	lagging := interceptor.NewClient(b.cluster.Client, interceptor.Funcs{
		Create: b.create, Delete: b.remove,
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, claims := list.(*karpv1.NodeClaimList); claims && !shows.Load() {
				return nil
			}
			return c.List(ctx, list, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, claim := o.(*karpv1.NodeClaim); claim && !shows.Load() {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "nodeclaims"}, key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	b.Provisioner = b.process(nil)
	src := b.cluster.Source()
	src.Karpenter = lagging
	b.Kube, b.Live, b.Views = lagging, b.api, view.New(src)
}

// TestClaimsThatTheCacheOfTheNewLeaderLacks checks that what the old leader wrote last is not bought again.
func TestClaimsThatTheCacheOfTheNewLeaderLacks(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		b.offer(pod("x", "1"))
		c := b.claim()
		c.CreationTimestamp.Time = builder.Epoch().Add(time.Minute)
		if err := b.api.Update(b.ctx, c); err != nil {
			t.Fatal(err)
		}
		var shows atomic.Bool
		b.standBy(&shows)
		b.run()
		b.offer(pod("x", "1"), pod("y", "1"))
		if got := b.ledger.podsOf(b.claim().Name); len(got) != 2 {
			t.Errorf("%d pods on the claim, want the one it was bought for and one for which it has room", len(got))
		}
		shows.Store(true)
		b.claimEvents(b.ctx).OnAdd(c, false)
		b.pass(2 * recentFor)
		if got := b.ledger.podsOf(b.claim().Name); len(got) != 2 {
			t.Errorf("%d pods on the claim once the cache shows it, want 2", len(got))
		}
	})
}

// TestClaimsThatAppearAfterTakeover checks that a claim which another process was still writing is used or given up.
func TestClaimsThatAppearAfterTakeover(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after []*corev1.Pod // that fail
		claims        int           // in the end
		late          int           // pods on the claim that appears
	}{
		"its pod has not failed here yet":   {nil, []*corev1.Pod{pod("x", "1")}, 1, 1},
		"its pod has got another claim":     {[]*corev1.Pod{pod("x", "1")}, nil, 1, 0},
		"its pod had to wait for something": {[]*corev1.Pod{pod("x", "100")}, nil, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bed) {
				b.cluster.Put(pod("x", "1"))
				b.run()
				if tc.before != nil {
					b.offer(tc.before...)
				}
				c := builder.NodeClaim("late").UID("late").Pool("p").Require(builder.In(corev1.LabelInstanceTypeStable, "m5.xlarge")).
					Annotation(PodsAnnotation, "default/x").Created(builder.Epoch().Add(time.Hour)).Obj()
				if err := b.api.Create(b.ctx, c); err != nil {
					t.Fatal(err)
				}
				b.claimEvents(b.ctx).OnAdd(c, false)
				b.offer(tc.after...)
				b.pass(cancelAfter + 3*sweepEvery)
				if got := len(b.live()); got != tc.claims {
					t.Errorf("%d claims, want %d", got, tc.claims)
				}
				if got := len(b.ledger.podsOf("late")); got != tc.late {
					t.Errorf("%d pods on the claim that appeared, want %d", got, tc.late)
				}
			})
		})
	}
}

// TestTakeoverWaitsForTheAPIServer checks that a new leader does not begin without knowing what there is.
func TestTakeoverWaitsForTheAPIServer(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		var away atomic.Bool
		away.Store(true)
		b.Live = interceptor.NewClient(b.cluster.Client, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if away.Load() {
					return errors.New("connection refused")
				}
				return c.List(ctx, list, opts...)
			},
		})
		b.run()
		b.offer(pod("x", "1"))
		b.pass(time.Minute)
		b.did("the API server is away")
		away.Store(false)
		b.pass(2 * writeLast)
		b.did("it is back", "launch for default/x", "event x Normal Nominated ")
	})
}
