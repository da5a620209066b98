// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

// TestRoomIsKept checks which pods room on an arriving node is kept for, against whom.
func TestRoomIsKept(t *testing.T) {
	now := builder.Epoch()
	l := newLedger()
	low, high, other := pod("low", "1"), pod("high", "1"), pod("other", "1")
	high.Spec.Priority = new(int32(10))
	for _, p := range []*corev1.Pod{low, high, other} {
		l.offer(p, now, nil)
	}
	mate := builder.Pod("mate").UID("mate").Obj()
	coming := seat{pod: builder.Pod("coming").UID("coming").Obj(), plan: &capacity.Pod{Class: &capacity.Class{}}, owner: "rs-uid"}
	l.expect([]seat{coming}, now)
	l.assign("c", "n", []*corev1.Pod{low, high, coming.pod})
	l.assign("elsewhere", "m", []*corev1.Pod{other})
	against := func(p *corev1.Pod, owner types.UID, node string) string {
		var names []string
		for _, k := range l.against(p, owner, node) {
			names = append(names, k.Name)
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	kept := func() []string { return slices.Sorted(slices.Values(l.kept.Load().UnsortedList())) }
	if got := against(pod("foreign", "1"), "", "n"); got != "" || len(kept()) != 0 {
		t.Errorf("before the node is there, room is kept for %q on %v", got, kept())
	}
	l.join("c", "n")
	urgent := pod("urgent", "1")
	urgent.Spec.Priority = new(int32(100))
	middle := pod("middle", "1")
	middle.Spec.Priority = new(int32(5))
	for _, tc := range []struct {
		pod   *corev1.Pod
		owner types.UID
		node  string
		want  string
	}{
		{pod("foreign", "1"), "", "n", "coming high low"},
		{pod("foreign", "1"), "", "m", ""}, // not joined
		{middle, "", "n", "high"},
		{urgent, "", "n", ""},
		{low, "", "n", ""},
		{other, "", "n", "coming high low"},
		{mate, "rs-uid", "n", "high low"}, // takes the seat
	} {
		if got := against(tc.pod, tc.owner, tc.node); got != tc.want {
			t.Errorf("against %s on %s: %q, want %q", tc.pod.Name, tc.node, got, tc.want)
		}
	}
	if diff := cmp.Diff([]string{"n"}, kept()); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	l.remove("low", "n")
	if l.lift() != nil {
		t.Error("a pod that is bound to its own node lifts nothing")
	}
	l.remove("high", "")
	if l.lift() == nil || l.lift() != nil {
		t.Error("a deleted pod's room was not given up, once")
	}
	if !l.sit("rs-uid", "c") || l.lift() != nil {
		t.Error("a pod that takes its seat by itself lifts nothing")
	}
	l.trim("rs-uid", 0, nil)
	if got := kept(); len(got) != 0 {
		t.Errorf("room is kept on %v for nobody", got)
	}
	l.assign("c", "n", []*corev1.Pod{other})
	l.leave("c")
	if got := kept(); len(got) != 0 {
		t.Errorf("room is kept on %v, which is gone", got)
	}
}

// TestTakenRoomIsReplacedAtOnce checks that a pod whose place others have taken does not wait for it to come free.
func TestTakenRoomIsReplacedAtOnce(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		x := pod("x", "3")
		b.offer(x)
		b.launched(b.claim(), builder.Node("n1").CPU("4").Memory("16Gi"))
		b.take()
		if parked, node := b.Offer(x, func(string) bool { return false }); parked || node != "n1" {
			t.Fatalf("Offer() = %v, %q: a pod whose node refuses it for a moment is retried there", parked, node)
		}
		if parked, _ := b.Offer(x, func(node string) bool { return node == "n1" }); !parked {
			t.Fatal("a pod whose room is taken is not parked")
		}
		b.Drained()
		b.pass(10 * time.Millisecond)
		b.did("planned again", "launch for default/x", "event x Normal Nominated ")
	})
}

// TestUndeclaredTaintHoldsPods has an agent put a taint on a node that its pool does not declare: the pods wait for it to go, those
// that tolerate it do not, and nothing more is bought for any of them, nor for pods that come meanwhile.
func TestUndeclaredTaintHoldsPods(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		x, brave := pod("x", "1"), pod("brave", "1")
		brave.Spec.Tolerations = []corev1.Toleration{{Key: "agent", Operator: corev1.TolerationOpExists}}
		b.offer(x, brave)
		b.take()
		c := b.launched(b.claim(), builder.Node("n1").CPU("4").Memory("16Gi").Taint("agent", "starting", corev1.TaintEffectNoSchedule))
		b.did("the node is up but for the taint", "reserve brave on n1", "release brave")
		b.pass(5 * time.Minute)
		b.offer(x)
		b.offer(pod("late", "1"))
		if got := launches(b.take()); len(got) != 0 {
			t.Errorf("while the taint is there: %q, want nothing bought", got)
		}
		clean := b.nodeFor(c.Name, c).DeepCopy()
		clean.Spec.Taints = nil
		b.cluster.Put(clean)
		b.onNode(b.ctx, clean, false)
		b.did("the taint goes", "reserve late on n1", "reserve x on n1", "release late x")
	})
}

// TestFreedRoomWakesParkedPods checks that a pod waiting for its node gets a cycle when room comes free elsewhere, and only
// then.
func TestFreedRoomWakesParkedPods(t *testing.T) {
	node := builder.Node("old").CPU("4").Memory("16Gi").Obj()
	filler := builder.Pod("filler").UID("filler").CPU("3").Memory("1Gi").On("old").Obj()
	inBubble(t, nil, func(b *bed) {
		b.run()
		b.offer(pod("small", "2"), pod("large", "6"))
		b.take()
		b.onPod(b.ctx, pod("unbound", "1"), true, true)
		b.pass(time.Second)
		b.did("a pod without a node is deleted")
		b.cluster.Delete(filler)
		b.onPod(b.ctx, filler, true, true)
		b.pass(time.Second)
		b.did("room for one of them", "release small")
	}, node, filler)
}

// TestRefusedPodsAreWokenForRoomOnly checks that a pod that no node can be bought for is not retried whenever it is planned
// again, and gets a cycle when there is room for it.
func TestRefusedPodsAreWokenForRoomOnly(t *testing.T) {
	node := builder.Node("old").CPU("40").Memory("99Gi").Obj()
	filler := builder.Pod("filler").UID("filler").CPU("39").Memory("1Gi").On("old").Obj()
	inBubble(t, nil, func(b *bed) {
		b.run()
		huge := pod("huge", "30")
		b.offer(huge)
		b.take()
		if parked, _ := b.Offer(huge, nil); parked {
			t.Fatal("an unplaced pod is parked")
		}
		b.Changed()
		b.pass(time.Minute)
		b.did("planned again, in vain")
		b.cluster.Delete(filler)
		b.onPod(b.ctx, filler, true, true)
		b.pass(time.Second)
		b.did("there is room", "release huge")
	}, node, filler)
}

// TestForgottenPods checks that the sweeper finds pods in each state they could be lost in, mends that and counts it, and
// nothing else.
func TestForgottenPods(t *testing.T) {
	const proof = sweepsPerProof * sweepEvery
	for name, tt := range map[string]struct {
		where limbo
		lose  func(b *bed)
		want  []string
	}{
		"parked and unknown": {limboGate, func(b *bed) { b.park("ghost") }, []string{"release ghost"}},
		"in no batch": {limboBatch, func(b *bed) {
			b.cluster.Put(pod("x", "1"))
			b.ledger.offer(pod("x", "1"), time.Now(), nil)
		}, []string{"launch for default/x", "event x Normal Nominated "}},
		"of a claim that is gone": {limboClaim, func(b *bed) {
			b.offer(pod("x", "1"))
			b.take()
			c := b.claim()
			c.Finalizers = nil
			if err := b.api.Update(b.ctx, c); err != nil {
				b.t.Fatal(err)
			}
			if err := b.api.Delete(b.ctx, c); err != nil {
				b.t.Fatal(err)
			}
			b.Provisioner.mu.Lock()
			clear(b.recent)
			b.Provisioner.mu.Unlock()
		}, []string{"launch for default/x", "event x Normal Nominated "}},
		"with a usable node": {limboNode, func(b *bed) {
			b.offer(pod("x", "1"))
			b.launched(b.claim(), builder.Node("n1").CPU("4").Memory("16Gi"))
			b.take()
			b.park("x")
		}, []string{"release x"}},
		"deleted": {limboPod, func(b *bed) {
			b.offer(pod("x", "1"))
			b.take()
			b.cluster.Delete(pod("x", "1"))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bed) {
				b.run()
				tt.lose(b)
				b.pass(3 * proof)
				if diff := cmp.Diff(tt.want, slices.Compact(b.take())); diff != "" {
					t.Errorf("mended (-want +got):\n%s", diff)
				}
				if got := testutil.ToFloat64(b.Metrics.Forgotten.WithLabelValues(string(tt.where))); got == 0 {
					t.Errorf("not counted as %q", tt.where)
				}
			})
		})
	}
	t.Run("nobody", func(t *testing.T) {
		inBubble(t, nil, func(b *bed) {
			b.run()
			b.offer(pod("planned", "1"), pod("huge", "500"))
			b.launched(b.claim(), builder.Node("n1").CPU("4").Memory("16Gi").NotReady())
			b.park("planned")
			b.pass(5 * proof)
			for _, where := range []limbo{limboGate, limboNode, limboBatch, limboClaim, limboPod} {
				if got := testutil.ToFloat64(b.Metrics.Forgotten.WithLabelValues(string(where))); got != 0 {
					t.Errorf("%v pods counted as forgotten (%s), want none", got, where)
				}
			}
		})
	})
}

// TestRoomIsKeptBeforeTheClaimIsSeen has the node open before this process sees the status of its own launch: it is kept all
// the same, whichever of node and instance is known first.
func TestRoomIsKeptBeforeTheClaimIsSeen(t *testing.T) {
	const providerID = "aws:///a/i-1"
	for name, nodeFirst := range map[string]bool{"the node is there first": true, "the instance is known first": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bed) {
				b.run()
				b.offer(pod("x", "1"))
				claim := b.claim()
				n := builder.Node("n1").CPU("4").Memory("16Gi").ProviderID(providerID).Label(karpv1.NodeRegisteredLabelKey, "true").Obj()
				bought := func() { b.Found(claim.Name, providerID, "n1") }
				joined := func() {
					b.cluster.Put(n)
					b.onNode(b.ctx, n, false)
				}
				if nodeFirst {
					joined()
					bought()
				} else {
					bought()
					joined()
				}
				if got := b.Against(pod("foreign", "1"), "n1"); len(got) != 1 || got[0].Name != "x" || !b.Kept().Has("n1") {
					t.Errorf("room on the node is kept for %d pods, and the nodes kept are %v", len(got), b.Kept())
				}
				b.take()
				b.launched(claim, nil)
				b.onClaim(b.ctx, b.claim(), false)
				if len(b.found) != 0 {
					t.Errorf("instances remembered after the cache shows them: %v", b.found)
				}
			})
		})
	}
}

// TestFoundForNobody checks that instances of claims without pods, and of claims that are gone, are not remembered.
func TestFoundForNobody(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		b.Found("of nobody", "aws:///a/i-0", "n0")
		b.offer(pod("x", "1"))
		claim := b.claim()
		b.Found(claim.Name, "aws:///a/i-1", "n1")
		if len(b.found) != 1 || len(b.byProvider) != 1 {
			t.Errorf("remembered %v and %v, want the claim with a pod", b.found, b.byProvider)
		}
		b.onClaim(b.ctx, claim, true)
		if len(b.found) != 0 || len(b.byProvider) != 0 {
			t.Errorf("remembered %v and %v after the claim was deleted", b.found, b.byProvider)
		}
	})
}
