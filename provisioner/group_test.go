// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

var trainers = types.NamespacedName{Namespace: "default", Name: "train"}

// offerGroup has a group of n pods of 15 cores fail together: each needs a node of its own.
func (b *bed) offerGroup(least, n int, more ...*corev1.Pod) []*corev1.Pod {
	return b.offerGroupIn("", least, n, more...)
}

// offerGroupIn is offerGroup for a group that has to be in one domain.
func (b *bed) offerGroupIn(domain string, least, n int, more ...*corev1.Pod) []*corev1.Pod {
	pods := more
	for i := range n {
		pods = append(pods, member(fmt.Sprintf("t-%d", i)))
	}
	b.failTogether(domain, least, pods...)
	return pods
}

// failTogether has the members of a group fail in one cycle. Those that the cluster has on nodes are there beside them.
func (b *bed) failTogether(domain string, least int, pods ...*corev1.Pod) (parked bool) {
	b.t.Helper()
	for _, p := range pods {
		b.cluster.Put(p)
	}
	parked = b.OfferGroup(trainers, least, domain, b.scheduled(), pods)
	b.Drained()
	b.pass(10 * time.Millisecond)
	return parked
}

// scheduled are the members of the group that the cluster has on nodes.
func (b *bed) scheduled() (out []*corev1.Pod) {
	all, err := b.Pods.List(labels.Everything())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, p := range all {
		if groupOfPod(p) == trainers && p.Spec.NodeName != "" {
			out = append(out, p)
		}
	}
	return out
}

// member is a pod of the group that needs a node of its own.
func member(name string) *corev1.Pod {
	p := pod(name, "15")
	p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &trainers.Name}
	return p
}

// end has a pod deleted.
func (b *bed) end(p *corev1.Pod) {
	b.cluster.Delete(p)
	b.onPod(b.ctx, p, true, false)
}

// arrive makes the node of a claim usable.
func (b *bed) arrive(c *karpv1.NodeClaim, node string) {
	b.t.Helper()
	c = c.DeepCopy()
	c.Status.ProviderID, c.Status.NodeName = "aws:///a/"+node, node
	b.cluster.Put(builder.Node(node).CPU("16").Memory("64Gi").ProviderID(c.Status.ProviderID).Label(karpv1.NodeRegisteredLabelKey, "true").Obj())
	if err := b.api.Status().Update(b.ctx, c); err != nil {
		b.t.Fatal(err)
	}
	b.onClaim(b.ctx, c, false)
}

func (b *bed) released() string {
	var out []string
	for _, line := range b.take() {
		if names, ok := strings.CutPrefix(line, "release "); ok {
			out = append(out, names)
		}
	}
	return strings.Join(out, ", ")
}

func TestGroupIsLetGoTogether(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		b.offerGroup(3, 3)
		claims := b.written()
		if len(claims) != 3 {
			t.Fatalf("%d claims for a group of three pods of one a node", len(claims))
		}
		b.take()
		for i, c := range claims {
			want := ""
			if i == 2 {
				want = "t-0 t-1 t-2"
			}
			b.arrive(c, fmt.Sprintf("n%d", i))
			if got := b.released(); got != want {
				t.Errorf("with %d of 3 nodes usable, released %q, want %q", i+1, got, want)
			}
		}
	})
}

// TestLostMemberIsReplaced checks that members which have a node count, whoever saw them bound.
func TestLostMemberIsReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		least  int
		before func(b *bed) // brings some of the group's pods onto nodes
		fail   string
		bought bool
	}{
		"all were bound, one is gone": {3, func(b *bed) {
			for i, p := range b.offerGroup(3, 3) {
				b.arrive(b.written()[i], fmt.Sprintf("n%d", i))
				b.bind(p, fmt.Sprintf("n%d", i))
			}
			b.end(member("t-2"))
		}, "t-3", true},
		"bound before this process began": {3, func(b *bed) {
			b.bind(member("t-0"), "n0")
			b.bind(member("t-1"), "n1")
		}, "t-2", true},
		"one of those that were bound is gone, too": {4, func(b *bed) {
			b.offerGroup(4, 4)
			for i := range 2 {
				b.arrive(b.written()[i], fmt.Sprintf("n%d", i))
				b.bind(member(fmt.Sprintf("t-%d", i)), fmt.Sprintf("n%d", i))
			}
			b.end(member("t-0")) // it was bound
			b.end(member("t-2")) // it was not
		}, "t-4", false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bed) {
				b.run()
				tc.before(b)
				b.take()
				b.failTogether("", tc.least, member(tc.fail))
				if e, _ := b.ledger.get(types.UID(tc.fail)); (e.state == planned) != tc.bought {
					t.Errorf("planned: %v, want %v:\n%s", e.state == planned, tc.bought, strings.Join(b.take(), "\n"))
				}
			})
		})
	}
}

func TestGroupIsBoughtForWholeOrNotAtAll(t *testing.T) {
	for name, tc := range map[string]struct {
		least, claims int
		refused       bool
	}{
		"all are needed, one fits nowhere": {4, 0, true},
		"enough of them fit":               {3, 3, true}, // the one that does not is refused
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bed) {
				b.run()
				b.offerGroup(tc.least, 3, pod("huge", "500"))
				if got := len(b.live()); got != tc.claims {
					t.Errorf("%d claims, want %d", got, tc.claims)
				}
				notes := strings.Join(b.take(), "\n")
				if got := strings.Contains(notes, "FailedScheduling"); got != tc.refused {
					t.Errorf("refusals told: %v, want %v:\n%s", got, tc.refused, notes)
				}
				if tc.claims == 0 && !strings.Contains(notes, `pod group \"default/train\" only, and it needs 4`) && !strings.Contains(notes, `it needs 4`) {
					t.Errorf("no event says what the group lacks:\n%s", notes)
				}
			})
		})
	}
}

// TestGroupGivesItsRoomBack checks that a group that has lost a node and finds no other does not hold the rest for ever.
func TestGroupGivesItsRoomBack(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		b.offerGroup(2, 2)
		claims := b.written()
		b.cluster.Sell(builder.DefaultClass, builder.Catalog()) // sold out
		if err := b.api.Delete(b.ctx, claims[0]); err != nil {
			t.Fatal(err)
		}
		b.onClaim(b.ctx, claims[0], true)
		b.pass(time.Second)
		b.take()
		b.pass(groupPatience / 2)
		if got := len(b.live()); got != 1 {
			t.Fatalf("%d claims, want the other one kept for a while", got)
		}
		b.pass(groupPatience + cancelAfter)
		if got := len(b.live()); got != 0 {
			t.Errorf("%d claims, want none: nobody can use it", got)
		}
		if got := b.released(); !strings.Contains(got, "t-") {
			t.Errorf("released %q: its pods wait for nothing", got)
		}
	})
}

// TestGroupInOneDomain checks that all nodes of a group are bought in one zone: the cheapest that has enough of them.
func TestGroupInOneDomain(t *testing.T) {
	big := func(zones map[string]float64) *capacity.Catalog {
		it := builder.InstanceType("m5.4xlarge").CPU("16").Memory("64Gi")
		for _, zone := range []string{"a", "b"} {
			if price := zones[zone]; price > 0 {
				it = it.OnDemand(price, zone)
			}
		}
		return builder.Catalog(it)
	}
	for name, tc := range map[string]struct {
		prices map[string]float64
		more   []*corev1.Pod
		want   string
		claims int
	}{
		"the cheaper zone":             {map[string]float64{"a": 0.9, "b": 0.8}, nil, "b", 3},
		"the zone a member is tied to": {map[string]float64{"a": 0.9, "b": 0.8}, []*corev1.Pod{builder.Pod("tied").UID("tied").CPU("15").Memory("1Gi").NodeSelector(corev1.LabelTopologyZone, "a").Created(builder.Epoch()).Obj()}, "a", 4},
		"members tied to two zones": {map[string]float64{"a": 0.9, "b": 0.8}, []*corev1.Pod{
			builder.Pod("tied").UID("tied").CPU("15").Memory("1Gi").NodeSelector(corev1.LabelTopologyZone, "a").Created(builder.Epoch()).Obj(),
			builder.Pod("knot").UID("knot").CPU("15").Memory("1Gi").NodeSelector(corev1.LabelTopologyZone, "b").Created(builder.Epoch()).Obj(),
		}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bed) {
				b.cluster.Sell(builder.DefaultClass, big(tc.prices))
				b.run()
				b.offerGroupIn(corev1.LabelTopologyZone, 3+len(tc.more), 3, tc.more...)
				claims := b.written()
				if len(claims) != tc.claims {
					t.Fatalf("%d claims, want %d", len(claims), tc.claims)
				}
				for _, c := range claims {
					if got := zonesOf(c); got != tc.want {
						t.Errorf("claim in zones %q, want %q", got, tc.want)
					}
				}
			})
		})
	}
}

// TestGroupStaysInItsDomain checks that a member whose node is lost gets one where the others are, even if it is cheaper elsewhere.
func TestGroupStaysInItsDomain(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		it := func(a, c float64) *capacity.Catalog {
			return builder.Catalog(builder.InstanceType("m5.4xlarge").CPU("16").Memory("64Gi").OnDemand(a, "a").OnDemand(c, "b"))
		}
		b.cluster.Sell(builder.DefaultClass, it(0.8, 0.9))
		b.run()
		b.offerGroupIn(corev1.LabelTopologyZone, 2, 2)
		first := b.written()
		b.cluster.Sell(builder.DefaultClass, it(0.8, 0.1))
		if err := b.api.Delete(b.ctx, first[0]); err != nil {
			t.Fatal(err)
		}
		b.onClaim(b.ctx, first[0], true)
		b.pass(time.Second)
		if got := len(b.live()); got != 2 {
			t.Fatalf("%d claims, want the lost one replaced", got)
		}
		for _, c := range b.written() {
			if got := zonesOf(c); got != "a" {
				t.Errorf("claim in zones %q, want a, where the group is", got)
			}
		}
	})
}

// TestReplacementIsInTheDomainOfTheGroup checks that members which run already decide where further ones are bought, even
// for a process that did not buy for them.
func TestReplacementIsInTheDomainOfTheGroup(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.cluster.Sell(builder.DefaultClass, builder.Catalog(builder.InstanceType("m5.4xlarge").CPU("16").Memory("64Gi").OnDemand(0.8, "a").OnDemand(0.9, "b")))
		b.run()
		b.cluster.Put(builder.Node("n0").CPU("16").Memory("64Gi").Label(corev1.LabelTopologyZone, "b").Obj())
		b.bind(member("t-0"), "n0")
		b.failTogether(corev1.LabelTopologyZone, 2, member("t-1"))
		if got := zonesOf(b.claim()); got != "b" {
			t.Errorf("claim in zones %q, want b, where the group runs", got)
		}
	})
}

// zonesOf are the zones a claim may be launched in.
func zonesOf(c *karpv1.NodeClaim) string {
	for _, r := range c.Spec.Requirements {
		if r.Key == corev1.LabelTopologyZone {
			return strings.Join(r.Values, ",")
		}
	}
	return ""
}
