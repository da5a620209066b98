// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package fidelity

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

// solveTime is far beyond what a small input needs, on any machine: it is there to catch loops.
const solveTime = 20 * time.Second

// FuzzSolve plans whatever the seed generates: pods with every rule, nodes that hold pods with rules, pools with
// requirements, taints and limits. It checks what every caller relies on: no panic, bounded time, each pod with exactly
// one fate, a reason for every refusal, and launches that can be bought.
func FuzzSolve(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed, uint8(seed), uint8(3*seed), seed%2 == 0)
	}
	cluster := source.New()
	f.Fuzz(func(t *testing.T, seed uint64, classes, replicas uint8, inFlight bool) {
		solveGenerated(t, cluster, newMaker(seed), plan.Input{OnlyInFlight: inFlight}, 1+int(classes)%6, 1+int(replicas)%9)
	})
}

// solveGenerated completes the input with what the maker draws, plans it and checks the plan.
func solveGenerated(t *testing.T, cluster *source.Cluster, m *maker, in plan.Input, classes, replicas int) {
	t.Helper()
	w := m.several()
	objects := make([]runtime.Object, 0, len(w.nodes)+len(w.bound))
	for _, n := range w.nodes {
		objects = append(objects, n)
	}
	for _, p := range w.bound {
		objects = append(objects, p)
	}
	cluster.Reset(objects...)
	b := view.New(cluster.Source())
	v, err := b.Build(t.Context(), view.Pending{})
	if err != nil {
		t.Fatal(err)
	}
	v.Pools = m.pools()
	in.View = v
	for c := range classes {
		pod := m.several().pod
		pod.Spec.Priority = new(int32(c % 2))
		for r := range replicas {
			p := pod.DeepCopy()
			p.Name = fmt.Sprintf("pending-%d-%d", c, r)
			p.UID = types.UID(p.Name)
			in.Pods = append(in.Pods, b.Pod(p))
		}
	}
	done := make(chan plan.Result, 1)
	go func() { done <- plan.Solve(in) }()
	select {
	case r := <-done:
		sound(t, in, r)
	case <-time.After(solveTime):
		t.Fatalf("no plan for %d pods in %s", len(in.Pods), solveTime)
	}
}

// pools are up to three pools over a small catalogue whose labels the generated pods select by.
func (m *maker) pools() []*capacity.Pool {
	catalog := builder.Catalog(
		builder.InstanceType("small.1").CPU("2").Memory("4Gi").Resource(corev1.ResourceEphemeralStorage, "20Gi").OnDemand(0.1, "a", "b", "c").Spot(0.04, "a", "b"),
		builder.InstanceType("big.1").CPU("16").Memory("64Gi").Resource(corev1.ResourceEphemeralStorage, "20Gi").OnDemand(0.8, "a", "b", "c"),
		builder.InstanceType("gpu.1").CPU("8").Memory("32Gi").Resource(gpu, "2").OnDemand(1.5, "b"),
	)
	var out []*capacity.Pool
	for i := range m.IntN(4) {
		b := builder.CapacityPool(fmt.Sprintf("pool-%d", i), catalog).Weight(int32(m.IntN(2)))
		if m.one(2) {
			b.NodeLabel("team", m.value())
		}
		if m.one(3) {
			b.Require(capacity.Exists("gen"))
		}
		if m.one(3) {
			b.Taint("dedicated", "x", corev1.TaintEffectNoSchedule)
		}
		if m.one(3) {
			b.LimitNodes(int64(m.IntN(4)))
		}
		if m.one(3) {
			b.Limit(corev1.ResourceCPU, fmt.Sprint(m.IntN(40)))
		}
		if m.one(3) {
			b.Require(capacity.In(karpv1.CapacityTypeLabelKey, pick(m, "spot", "on-demand")))
		}
		if m.one(3) {
			b.Daemons(builder.Class("daemon").CPU("100m").Memory("100Mi").Obj())
		}
		out = append(out, b.Obj())
	}
	slices.SortFunc(out, func(a, b *capacity.Pool) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// sound checks a plan against its input.
func sound(t *testing.T, in plan.Input, r plan.Result) {
	t.Helper()
	fates := map[types.UID]int{}
	for _, p := range r.Placements {
		fates[p.Pod.UID]++
		if in.OnlyInFlight && p.Node.Phase == capacity.Usable {
			t.Errorf("pod %s is placed on %s, which the scheduler has just refused", p.Pod.UID, p.Node.ID())
		}
	}
	for _, u := range r.Unplaced {
		fates[u.Pod.UID]++
		if u.Reason == "" || u.Detail == "" {
			t.Errorf("pod %s is refused by pool %q with reason %q and detail %q", u.Pod.UID, u.Pool, u.Reason, u.Detail)
		}
	}
	nodes := map[string]int64{}
	for i := range r.Launches {
		l := &r.Launches[i]
		nodes[l.Pool.Name]++
		if len(l.Pods) == 0 || len(l.Offerings) == 0 || len(l.Steps) != len(l.Pods) {
			t.Fatalf("a launch has %d pods, %d steps and %d offerings", len(l.Pods), len(l.Steps), len(l.Offerings))
		}
		for _, p := range l.Pods {
			fates[p.UID]++
		}
		for _, o := range l.Offerings {
			if !l.Requests.Fits(o.Type.Allocatable) {
				t.Errorf("launch asks for %s, offering %s has %s", l.Requests, o.Type.Name, o.Type.Allocatable)
			}
		}
	}
	for _, p := range in.View.Pools {
		if p.LimitNodes != nil && nodes[p.Name] > *p.LimitNodes {
			t.Errorf("pool %s buys %d nodes, its limit is %d", p.Name, nodes[p.Name], *p.LimitNodes)
		}
	}
	for _, p := range in.Pods {
		if fates[p.UID] != 1 {
			t.Errorf("pod %s has %d fates", p.UID, fates[p.UID])
		}
	}
}
