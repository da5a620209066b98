// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

// carried carries out what a pass has decided.
func (b *bed) carried(d disruption.Decision) (going int) {
	b.t.Helper()
	for _, c := range d.Commands {
		going += len(c.Going)
		if _, err := b.Carry(c); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := b.Check(); err != nil {
		b.t.Fatal(err)
	}
	return going
}

// Of many nodes at rest some lose most of their pods: that is worked through in slices, each of which says that there is more. A
// pass that knows nothing looks at all of it.
func TestFewChangesAreWorkedThroughInSlices(t *testing.T) {
	b := newBed(t, nil)
	port := builder.Class("port").CPU("100m").HostPort(9000).Obj() // keeps the pods of any two nodes apart
	for i := range 60 {
		m := b.node("m5.2xlarge", 79, "100m") // full, with the one that follows
		p := builder.PodsOf(port, 1)[0]
		p.Name, p.UID = fmt.Sprintf("port-%d", i), types.UID(fmt.Sprintf("port-%d", i))
		m.Pods = append([]*capacity.Pod{p}, m.Pods...)
		m.Touch()
	}
	for more := true; more; {
		d := b.decide(time.Hour)
		b.want(d)
		more = d.More
	}
	for _, name := range slices.Sorted(maps.Keys(b.Machines))[:12] {
		n := 0
		b.Machines[name].Keep(func(*capacity.Pod) bool { n++; return n <= 36 }) // a node of four cores holds them
	}
	whole := disruption.Decide(b.Snapshot(), disruption.NewMemory())
	all := 0
	for _, c := range whole.Commands {
		all += len(c.Going)
	}
	if all < 8 || whole.More {
		t.Errorf("a pass without a memory takes %d nodes, more %v, want most of the 12 at once", all, whole.More)
	}
	passes := 0
	for more := true; more; passes++ {
		d := b.decide(time.Second)
		if got := b.carried(d); got > 4 { // three of 36 pods, and the one that reaches the bound
			t.Errorf("pass %d takes %d nodes, want at most the 4 of a slice", passes, got)
		}
		if more = d.More; passes > 20 {
			t.Fatal("there is no end of it")
		}
	}
	if passes < 3 || b.Price() > 48-12*0.4+1e-9 {
		t.Errorf("after %d passes nodes cost %.2f, want several, and at most 43.20", passes, b.Price())
	}
	before := b.Price()
	for range 20 {
		b.carried(b.decide(time.Minute))
	}
	if math.Abs(b.Price()-before) > 1e-9 { // it is summed up in any order
		t.Errorf("cost went on from %.2f to %.2f, want nothing left to do after the last slice", before, b.Price())
	}
}

// At rest, nodes whose turn has come again are looked at a few at a time, and each of them within a while.
func TestEachNodesTurnComesAgain(t *testing.T) {
	b := newBed(t, nil)
	for range 100 {
		b.node("m5.large", 1, "1900m")
	}
	b.want(b.decide(time.Hour))
	b.want(b.decide(20 * time.Minute)) // all of them are due at once
	// A type that is cheaper by a half is found for all of them.
	cheap := builder.Catalog(
		builder.InstanceType("m5.large").CPU("2").Memory("8Gi").OnDemand(0.2, "a", "b"),
		builder.InstanceType("m6.large").CPU("2").Memory("8Gi").OnDemand(0.1, "a", "b"),
	)
	b.Pools[0] = builder.CapacityPool("p", cheap).Require(capacity.In(karpv1.CapacityTypeLabelKey, "on-demand")).Obj()
	total := 0
	for range 120 {
		total += b.carried(b.decide(10 * time.Second))
	}
	if total != 100 {
		t.Errorf("%d nodes of 100 were replaced in 20 minutes", total)
	}
}

// Whatever a pass leaves as it is, it says why, and of nothing it takes.
func TestEveryNodeThatStaysSaysWhy(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := newBed(t, func(p *builder.NodePoolBuilder) {
			p.Budget([]string{"0", "1", "20%", "100%"}[r.IntN(4)])
			if r.IntN(4) == 0 {
				p.Consolidate(karpv1.ConsolidationPolicyWhenEmpty, karpv1.Never)
			}
			if r.IntN(4) == 0 {
				p.NodeLabel("team", "a").Require(builder.In("team", "a")) // all drift
			}
		})
		sizes := []string{"m5.large", "m5.xlarge", "m5.2xlarge"}
		for range 25 {
			m := b.node(sizes[r.IntN(3)], r.IntN(4), []string{"100m", "300m", "600m"}[r.IntN(3)])
			switch r.IntN(8) {
			case 0:
				m.Claim.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
			case 1:
				m.API = func(p *corev1.Pod) { p.Annotations[karpv1.DoNotDisruptAnnotationKey] = "true" }
			case 2:
				m.Node.Labels[karpv1.NodeInitializedLabelKey] = ""
			case 3:
				m.Claim.CreationTimestamp = metav1.NewTime(b.Now)
			}
			m.Touch()
		}
		for pass := range 4 {
			d := b.decide([]time.Duration{time.Minute, time.Hour, time.Second, time.Minute}[pass])
			says := map[string]string{}
			for _, x := range d.Rejections {
				says[x.Node.Claim.Name] += x.Message
			}
			for _, c := range d.Commands {
				for _, name := range c.Nodes {
					if says[name] != "" {
						t.Errorf("seed %d: %s goes (%s) and stays: %s", seed, name, c.Reason, says[name])
					}
					says[name] = "goes"
				}
			}
			for name := range b.Machines {
				if says[name] == "" {
					t.Errorf("seed %d, pass %d: nothing is said of %s", seed, pass, name)
				}
			}
			b.carried(d)
		}
	}
}

// A node that can neither be emptied nor replaced names the pod that has no place elsewhere.
func TestUnconsolidatableNamesThePod(t *testing.T) {
	b := newBed(t, nil)
	b.node("m5.large", 1, "1900m")
	b.node("m5.large", 1, "1900m")
	d := b.decide(time.Hour)
	for name := range b.Machines {
		want := fmt.Sprintf("Unconsolidatable: Can't replace with a cheaper node; Not all pods would schedule, default/%s-", name)
		if got := said(d, name); len(got) < len(want) || got[:len(want)] != want {
			t.Errorf("%s: %q, want %q…", name, got, want)
		}
	}
}
