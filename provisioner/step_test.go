// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/launch"
	"github.com/slipway-sh/slipway/test/builder"
)

func (b *bed) did(what string, want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.take()); diff != "" {
		b.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestClaimIsWrittenBeforeLaunchAndOnce(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		b.offer(pod("x", "1"), pod("y", "2"))
		b.did("first batch", "launch for default/y,default/x", "event y Normal Nominated ", "event x Normal Nominated ")
		b.offer(pod("x", "1"), pod("y", "2"))
		b.did("offered again")
		b.offer(pod("z", "500m"))
		b.did("a pod for which the node on its way has room", "event z Normal Nominated ")
		c := b.claim()
		type claim struct {
			Pool, Pods, Price string
			Finalizer         bool
			Owner             string
			Requests          corev1.ResourceList
		}
		want := claim{"p", "default/y,default/x", "0.20000", true, "p", corev1.ResourceList{"cpu": resource.MustParse("3"), "memory": resource.MustParse("2Gi"), "pods": resource.MustParse("2")}}
		got := claim{
			c.Labels[karpv1.NodePoolLabelKey], c.Annotations[PodsAnnotation], c.Annotations[PriceAnnotation], len(c.Finalizers) == 1 && c.Finalizers[0] == karpv1.TerminationFinalizer,
			c.OwnerReferences[0].Name, c.Spec.Resources.Requests,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("claim (-want +got):\n%s", diff)
		}
		if parked, _ := b.Offer(pod("x", "1"), nil); !parked {
			t.Error("a planned pod is not parked")
		}
	})
}

// The images are the pool's and not the claim's: claims that differ in their pods share templates and calls all the same.
func TestClaimsNameTheImagesOfTheirBatch(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		web, jobs, secret := pod("a", "15"), pod("b", "15"), pod("c", "15")
		web.Spec.Containers[0].Image, jobs.Spec.Containers[0].Image, secret.Spec.Containers[0].Image = "web:2", "jobs:1", "secret:1"
		secret.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
		b.offer(web, jobs, secret)
		got := map[string]int{}
		for _, c := range b.written() {
			got[c.Annotations[launch.ImagesAnnotation]]++
		}
		if diff := cmp.Diff(map[string]int{"jobs:1,web:2": 3}, got); diff != "" {
			t.Errorf("claims by images (-want +got):\n%s", diff)
		}
	})
}

func TestEqualClaimsShareALaunchGroup(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		b.offer(pod("a", "15"), pod("b", "15"), pod("c", "3500m"))
		groups := map[string]int{}
		for _, c := range b.written() {
			groups[c.Annotations[launch.LaunchGroupAnnotation]]++
		}
		if len(b.written()) != 3 || len(groups) != 2 || groups[""] != 1 {
			t.Errorf("claims by launch group: %v, want two in one group and one in none", groups)
		}
	})
}

func TestLaunchesDoNotWaitForTheClaimsOfOthers(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.slow = func(c *karpv1.NodeClaim) time.Duration {
			if strings.Contains(c.Annotations[PodsAnnotation], "default/c") {
				return 3 * time.Second
			}
			return 0
		}
		b.run()
		b.offer(pod("a", "15"), pod("b", "15"), pod("c", "3500m"))
		if got, want := launches(b.take()), []string{"launch for default/a", "launch for default/b"}; !slices.Equal(got, want) {
			t.Errorf("while one claim is being written: %q, want %q", got, want)
		}
		b.pass(3 * time.Second)
		if got, want := launches(b.take()), []string{"launch for default/c"}; !slices.Equal(got, want) {
			t.Errorf("when it is written: %q, want %q", got, want)
		}
	})
}

// launches are those entries of the diary.
func launches(entries []string) []string {
	out := slices.DeleteFunc(entries, func(e string) bool { return !strings.HasPrefix(e, "launch ") })
	slices.Sort(out)
	return out
}

func TestRefusedWritePutsPodsBack(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		refused := apierrors.NewForbidden(schema.GroupResource{Resource: "nodeclaims"}, "x", errors.New("quota"))
		b.createFails = []error{refused, refused}
		b.run()
		b.offer(pod("x", "1"))
		b.did("the write fails")
		b.pass(time.Second)
		b.did("it fails again")
		b.pass(2 * time.Second)
		b.did("it succeeds", "launch for default/x", "event x Normal Nominated ")
		b.claim()
	})
}

// TestOpenAnswerIsFollowedUp has writes of a claim end without an answer: in the end there is one claim, and one launch.
func TestOpenAnswerIsFollowedUp(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "nodeclaims"}, "x", errors.New("rules not read yet"))
	lost := func(n int) []error { return slices.Repeat([]error{errors.New("connection refused")}, n) }
	for name, tc := range map[string]struct {
		creates []error
		deletes int
		after   time.Duration
		kept    bool // nothing was deleted
	}{
		"not written, and soon answered":                 {creates: lost(2), after: time.Second},
		"written, and soon answered":                     {creates: append([]error{errAnswerLost}, lost(1)...), after: time.Second},
		"written, then nobody answers for long":          {creates: append([]error{errAnswerLost}, lost(30)...), after: time.Minute},
		"written, then refused by a server just started": {creates: append([]error{errAnswerLost}, append(lost(9), refused, refused)...), after: time.Minute, kept: true},
		"written, then refused: it has to go":            {creates: append([]error{errAnswerLost}, slices.Repeat([]error{refused}, writeTries)...), after: time.Minute},
		"written, then refused and not to be rid of":     {creates: append([]error{errAnswerLost}, slices.Repeat([]error{refused}, writeTries+3)...), deletes: 4, after: time.Minute, kept: true},
		"the API server fails":                           {creates: slices.Repeat([]error{apierrors.NewInternalError(errors.New("etcd"))}, writeTries), after: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bed) {
				b.createFails, b.deleteFails = tc.creates, tc.deletes
				b.run()
				b.offer(pod("x", "1"))
				b.did("nobody knows whether the claim was written")
				b.pass(tc.after)
				b.did("it is known", "launch for default/x", "event x Normal Nominated ")
				alive := slices.DeleteFunc(b.written(), func(c *karpv1.NodeClaim) bool { return !c.DeletionTimestamp.IsZero() })
				if len(alive) != 1 {
					t.Errorf("%d claims are left, want 1", len(alive))
				}
				if all := len(b.written()); tc.kept && all != 1 {
					t.Errorf("%d claims were written, want 1", all)
				}
			})
		})
	}
}

// TestUnansweredWriteDelaysNoOtherPlan has the API server hang on one claim, as it does on a slow admission webhook for one pool:
// other pods get their nodes meanwhile, nothing is bought in its place, and it is launched once it is there.
func TestUnansweredWriteDelaysNoOtherPlan(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "nodeclaims"}, "x", errors.New("no"))
	for name, tc := range map[string]struct {
		fails []error
		then  []string
	}{
		"it is written in the end": {nil, []string{"launch for default/stuck", "event stuck Normal Nominated "}},
		"it is refused in the end": {[]error{refused}, []string{"launch for default/stuck", "event stuck Normal Nominated "}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bed) {
				var hung atomic.Bool
				b.slow = func(c *karpv1.NodeClaim) time.Duration {
					if strings.Contains(c.Annotations[PodsAnnotation], "default/stuck") && !hung.Swap(true) {
						return time.Minute
					}
					return 0
				}
				b.run()
				b.offer(pod("stuck", "15"))
				b.did("the API server hangs")
				b.offer(pod("next", "15"))
				b.pass(writePatience)
				b.did("another pod", "launch for default/next", "event next Normal Nominated ")
				b.offer(pod("stuck", "15"))
				b.pass(time.Minute - 2*writePatience)
				b.did("nothing is bought in its place")
				b.createFails = tc.fails
				b.pass(2*writePatience + 2*time.Second)
				b.did("it answers", tc.then...)
			})
		})
	}
}

func TestOneFailedWriteDelaysNoOther(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.createFails = []error{errors.New("conflict")}
		b.run()
		b.offer(pod("a", "15"), pod("b", "15"))
		if got := len(b.written()); got != 1 {
			t.Errorf("%d claims at once, want the one whose write worked", got)
		}
		b.pass(2 * time.Second)
		if got := len(b.written()); got != 2 {
			t.Errorf("%d claims in the end, want 2", got)
		}
	})
}

func TestLostClaimIsPlannedAgain(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		b.offer(pod("x", "1"))
		b.take()
		c := b.claim()
		c.Finalizers = nil
		if err := b.api.Update(b.ctx, c); err != nil {
			t.Fatal(err)
		}
		if err := b.api.Delete(b.ctx, c); err != nil {
			t.Fatal(err)
		}
		b.onClaim(b.ctx, c, true)
		b.pass(10 * time.Millisecond)
		b.did("the claim is gone", "launch for default/x", "event x Normal Nominated ")
		b.onClaim(b.ctx, c, true)
		b.pass(10 * time.Millisecond)
		b.did("the same news again")
	})
}

func TestUnplacedPods(t *testing.T) {
	const reason = `no node can be bought for the pod; nearest NodePool "p": asks for 500 cpu, the largest instance type that would do has 16 left after daemonset pods`
	inBubble(t, nil, func(b *bed) {
		b.run()
		b.offer(pod("huge", "500"))
		b.did("refused", "event huge Warning FailedScheduling "+reason, "release huge")
		if parked, _ := b.Offer(pod("huge", "500"), nil); parked {
			t.Error("an unplaced pod is parked")
		}
		b.pass(9 * time.Second)
		b.did("before its time")
		b.pass(5 * time.Second)
		b.did("tried again, told once")
		b.Changed()
		b.pass(50 * time.Millisecond)
		b.did("something changed")
		if n := len(b.written()); n != 0 {
			t.Errorf("%d claims for a pod that fits nowhere", n)
		}
		b.cluster.Sell(builder.DefaultClass, builder.Catalog(builder.InstanceType("u.metal").CPU("600").Memory("1Ti").OnDemand(60, "a")))
		b.Changed()
		b.pass(50 * time.Millisecond)
		b.did("a type that holds it is sold", "launch for default/huge", "event huge Normal Nominated ")
	})
}

func TestGoneAndBoundPodsAreForgotten(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		for _, p := range []*corev1.Pod{pod("deleted", "1"), pod("leaving", "1"), pod("bound", "1")} {
			b.Offer(p, nil)
		}
		b.onPod(b.ctx, pod("deleted", "1"), true, true)
		b.onPod(b.ctx, builder.Pod("leaving").UID("leaving").Deleted(time.Now()).Obj(), false, true)
		b.onPod(b.ctx, builder.Pod("bound").UID("bound").On("n").Obj(), false, true)
		b.offer()
		b.pass(2 * time.Second)
		b.did("nothing waits any more")
		if got, seats := b.ledger.counts(); got != [3]int{} || seats != 0 {
			t.Errorf("ledger = %v", got)
		}
	})
}

func TestUsableNodeLetsPodsGo(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		b.offer(pod("x", "1"), pod("y", "1"))
		b.take()
		c := b.launched(b.claim(), nil)
		b.did("launched")
		c = b.launched(c, builder.Node("n1").CPU("4").Memory("16Gi").NotReady())
		b.did("joined")
		c = b.launched(c, builder.Node("n1").CPU("4").Memory("16Gi"))
		b.did("ready", "reserve x on n1", "reserve y on n1", "release x y")
		b.launched(c, builder.Node("n1").CPU("4").Memory("16Gi"))
		b.did("still ready")
		if parked, node := b.Offer(pod("x", "1"), nil); parked || node != "n1" {
			t.Errorf("offered with a usable node: parked %v, node %q", parked, node)
		}
		b.pass(bindGrace)
		b.offer(pod("x", "1"))
		b.did("x did not bind in time and is planned anew", "launch for default/x", "event x Normal Nominated ")
	})
}

func TestNodeEventLetsPodsGo(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		b.offer(pod("x", "1"))
		c := b.launched(b.claim(), builder.Node("n1").CPU("4").Memory("16Gi").NotReady())
		b.take()
		n := builder.Node("n1").CPU("4").Memory("16Gi").ProviderID(c.Status.ProviderID).Label(karpv1.NodeRegisteredLabelKey, "true").Obj()
		b.cluster.Put(n)
		b.onNode(b.ctx, builder.Node("other").Obj(), false)
		b.did("a node of nobody")
		b.onNode(b.ctx, n, false)
		b.did("the node", "reserve x on n1", "release x")
	})
}

func TestReport(t *testing.T) {
	for name, tc := range map[string]struct {
		outcome launch.Outcome
		want    []string
		claims  int
	}{
		"an instance with a known name": {
			outcome: launch.Outcome{NodeName: "n1"}, claims: 1,
			want: []string{"reserve x on n1", "nominate x on n1"},
		},
		"an instance without a name yet": {claims: 1},
		"a delay": {
			outcome: launch.Outcome{Retrying: true, Err: &capacity.Error{Kind: capacity.Unauthorized, Code: "UnauthorizedOperation"}}, claims: 1,
			want: []string{
				"reserve x on C", "nominate x on C",
				`event x Warning LaunchDelayed NodeClaim "C" cannot be launched yet: Unauthorized: UnauthorizedOperation`,
			},
		},
		"a failure": {
			outcome: launch.Outcome{Err: &capacity.Error{Kind: capacity.NoCapacity, Code: "InsufficientInstanceCapacity"}}, claims: 2,
			want: []string{
				`event x Warning LaunchFailed NodeClaim "C" was not launched, another node is looked for: NoCapacity: InsufficientInstanceCapacity`,
				"launch for default/x", "event x Normal Nominated ",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bed) {
				b.run()
				b.offer(pod("x", "1"))
				b.take()
				o := tc.outcome
				o.Claim = b.claim().DeepCopy()
				name := o.Claim.Name
				b.Report(o)
				b.pass(50 * time.Millisecond)
				got := b.take()
				for i := range got {
					got[i] = strings.ReplaceAll(got[i], name, "C")
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if n := len(b.written()); n != tc.claims { // a failed claim waits for its finalizer, marked as deleted
					t.Errorf("%d claims, want %d", n, tc.claims)
				}
				if tc.claims == 2 {
					c := &karpv1.NodeClaim{}
					if err := b.api.Get(b.ctx, client.ObjectKey{Name: name}, c); err != nil || c.DeletionTimestamp.IsZero() {
						t.Errorf("the failed claim is not being deleted: %v", err)
					}
				}
			})
		})
	}
}

func TestAdopt(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		b.offer(pod("x", "1"), pod("y", "1"))
		c := b.claim()
		c.CreationTimestamp.Time = builder.Epoch().Add(time.Minute)
		c.Annotations[launch.NodeNameAnnotation] = "n1"
		if err := b.api.Update(b.ctx, c); err != nil {
			t.Fatal(err)
		}
		y := pod("y", "1")
		y.Spec.NodeName = "elsewhere"
		b.cluster.Put(y)
		b.take()

		b.Provisioner = b.process(nil) // the old process is gone
		b.run()
		b.did("the claim is taken over, with the pod that still waits", "reserve x on n1", "nominate x on n1")
		b.offer(pod("x", "1"))
		b.did("its pod fails to schedule again")
		b.launched(c, builder.Node("n1").CPU("4").Memory("16Gi"))
		b.did("its node is usable", "reserve x on n1", "release x")
		b.claim()
	})
}

func TestAdoptLeavesOthersAlone(t *testing.T) {
	claim := func(name, pods string) *builder.NodeClaimBuilder {
		return builder.NodeClaim(name).UID(name).Pool("p").Annotation(PodsAnnotation, pods).Created(builder.Epoch().Add(time.Hour))
	}
	younger := builder.Pod("younger").UID("younger").Created(builder.Epoch().Add(2 * time.Hour)).Obj()
	inBubble(t, nil, func(b *bed) {
		b.cluster.Put(younger)
		b.cluster.Put(pod("x", "1"))
		b.run()
		b.did("nothing")
		if got, seats := b.ledger.counts(); got != [3]int{} || seats != 0 {
			t.Errorf("ledger = %v", got)
		}
	},
		claim("leaving", "default/x").Deleted(builder.Epoch()).Obj(),
		claim("of-nobody", "").Obj(),
		claim("of-gone-pods", "default/gone,nonsense").Obj(),
		claim("older-than-its-pod", "default/younger").Obj(),
	)
}

func TestRunWaitsForLeadership(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		go func() { _ = b.Run(b.ctx) }()
		b.offer(pod("x", "1"))
		b.pass(time.Minute)
		b.did("not leading")
		b.Leading()
		b.Leading()
		b.pass(time.Second)
		b.did("leading", "launch for default/x", "event x Normal Nominated ")
	})
}

// TestDrain checks that the batch being planned is carried out and that nothing is begun afterwards.
func TestDrain(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.createPause = 200 * time.Millisecond
		b.run()
		x := pod("x", "1")
		b.cluster.Put(x)
		b.Offer(x, nil)
		b.Drained()
		b.pass(50 * time.Millisecond) // its claim is being written
		began := time.Now()
		if !b.Drain(b.ctx) {
			t.Error("not drained")
		}
		if took := time.Since(began); took < 100*time.Millisecond {
			t.Errorf("drained after %v, before the claim was written", took)
		}
		b.did("what was under way", "launch for default/x", "event x Normal Nominated ")
		b.offer(pod("y", "1"))
		b.pass(time.Second)
		b.did("nothing is begun")
	})
}

func TestDrainOfAStandby(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		if !b.Drain(b.ctx) {
			t.Error("a process that never led has something to wait for")
		}
	})
}
