// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/slipway-sh/slipway/provisioner/demand"
	"github.com/slipway-sh/slipway/provisioner/hypothesis"
)

// look has the bed look at open batches from so many pods on.
func (b *bed) look(pods int) {
	b.batch = demand.New(clock.RealClock{}, demand.Options{Debounce: 5 * time.Millisecond, MaxAge: time.Second, MaxSize: 10000, Look: pods})
}

// fail has pods fail to schedule one after the other, with those after them still queued, and so many that fit elsewhere.
func (b *bed) fail(pods []*corev1.Pod, others int) {
	for i, p := range pods {
		b.cluster.Put(p)
		b.Queued(len(pods) - i - 1 + others)
		b.Offer(p, nil)
		b.pass(0) // the look, if one is due
	}
}

// bought sums the claims up: how often each pod is on one, and their price.
func (b *bed) bought() (places map[string]int, price float64) {
	b.t.Helper()
	places = map[string]int{}
	for _, c := range b.written() {
		for _, key := range splitPods(c.Annotations[PodsAnnotation]) {
			places[key.Name]++
		}
		p, err := strconv.ParseFloat(c.Annotations[PriceAnnotation], 64)
		if err != nil {
			b.t.Fatal(err)
		}
		price += p
	}
	return places, price
}

// cores are pods of so many cores.
func cores(n int, cpu string) []*corev1.Pod {
	out := make([]*corev1.Pod, n)
	for i := range out {
		out[i] = pod(fmt.Sprintf("p%03d", i), cpu)
	}
	return out
}

func TestFullNodesLeaveAnOpenBatch(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.look(8)
		b.run()
		pods := cores(40, "1")
		b.fail(pods[:20], 20)
		early, _ := b.bought()
		if len(early) == 0 {
			t.Fatal("no node was bought while the batch was open, although some were full")
		}
		b.fail(pods[20:], 0)
		b.Drained()
		b.pass(10 * time.Millisecond)
		places, _ := b.bought()
		for _, p := range pods {
			if places[p.Name] != 1 {
				t.Errorf("pod %s is on %d claims, want one", p.Name, places[p.Name])
			}
		}
	})
}

func TestNodesThatWaitForTheirBatch(t *testing.T) {
	refuse := judgeFunc(func(hypothesis.Trial) string { return "no" })
	change := func(do func(p *corev1.Pod)) []*corev1.Pod {
		pods := cores(16, "1")
		for _, p := range pods {
			do(p)
		}
		return pods
	}
	together := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}, TopologyKey: corev1.LabelHostname,
		}}}}
	}
	for name, tc := range map[string]struct {
		pods  []*corev1.Pod
		judge Judge
		other int
	}{
		"nodes with room for more": {pods: cores(10, "100m"), other: 0},
		"pods that have to be spread": {other: 100, pods: change(func(p *corev1.Pod) {
			p.Labels = map[string]string{"app": "x"}
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
			}}
		})},
		"a batch with a pod that wants to be with others": {other: 100, pods: append(cores(16, "1"), func() *corev1.Pod { p := pod("z", "1"); together(p); return p }())},
		"members of a group":                              {other: 100, pods: change(func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("g")} })},
		"nodes the judge refuses":                         {other: 100, pods: cores(16, "1"), judge: refuse},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, tc.judge, func(b *bed) {
				b.look(len(tc.pods))
				b.run()
				b.fail(tc.pods, tc.other)
				if places, _ := b.bought(); len(places) > 0 {
					t.Errorf("%d pods have nodes before their batch has closed", len(places))
				}
			})
		})
	}
}

// TestLeavingEarlyCostsNothing plans bursts of pods of several sizes with and without looks at the open batch.
func TestLeavingEarlyCostsNothing(t *testing.T) {
	sum := map[int]float64{}
	for seed := range uint64(20) {
		for _, look := range []int{0, 16} {
			inBubble(t, nil, func(b *bed) {
				b.look(look)
				b.run()
				dice := rand.New(rand.NewPCG(seed, 0))
				sizes := make([]int, 1+dice.IntN(6))
				for i := range sizes {
					sizes[i] = 100 + 50*dice.IntN(100)
				}
				pods := make([]*corev1.Pod, 300)
				for i := range pods {
					pods[i] = pod(fmt.Sprintf("p%03d", i), fmt.Sprintf("%dm", sizes[dice.IntN(len(sizes))]))
					pods[i].UID = types.UID(fmt.Sprintf("%08x", dice.Uint32()))
				}
				b.fail(pods, 0)
				b.Drained()
				b.pass(10 * time.Millisecond)
				places, price := b.bought()
				for _, p := range pods {
					// Some are on the last room of a node that left early, which its claim does not tell.
					if e, known := b.ledger.get(p.UID); !known || e.state != planned || places[p.Name] > 1 {
						t.Errorf("seed %d, look %d: pod %s of %s is on %d claims, want one", seed, look, p.Name, p.Spec.Containers[0].Resources.Requests.Cpu(), places[p.Name])
					}
				}
				sum[look] += price
			})
		}
	}
	if ratio := sum[16] / sum[0]; ratio > 1.01 {
		t.Errorf("nodes that leave early cost %.4f of those that wait for their batch, want at most 1.01", ratio)
	} else {
		t.Logf("cost with early launches: %.4f of that without", ratio)
	}
}
