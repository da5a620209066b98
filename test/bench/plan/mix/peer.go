// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/builder"
)

// PeerPods is the mix of Karpenter's scheduling benchmark (makeDiversePods in its scheduling_benchmark_test.go): five
// equal kinds of pods (generic, zone spread, host spread, zone affinity to themselves, host anti-affinity), what does not
// divide by five generic; labels from a to g, CPU and memory drawn from short lists; a spread's selector is drawn
// apart from the pod's own label; all pods with anti-affinity have one label. One pool with limits nothing reaches.
func PeerPods(cat *capacity.Catalog, n int, seed uint64) plan.Input {
	g := &peer{r: rand.New(rand.NewPCG(seed, 0)), classes: map[string]*capacity.Class{}}
	fifth := n / 5
	g.add("generic", n-4*fifth, func(b *builder.ClassBuilder) string {
		l := g.letter()
		b.Label("my-label", l)
		return l
	})
	g.add("zone-spread", fifth, func(b *builder.ClassBuilder) string {
		l, s := g.letter(), g.letter()
		b.Label("my-label", l).ZoneSpread(1, map[string]string{"my-label": s})
		return l + s
	})
	g.add("host-spread", fifth, func(b *builder.ClassBuilder) string {
		l, s := g.letter(), g.letter()
		b.Label("my-label", l).NodeSpread(1, map[string]string{"my-label": s})
		return l + s
	})
	g.add("zone-affinity", fifth, func(b *builder.ClassBuilder) string {
		l := g.letter()
		b.Label("my-affinity", l).Near(corev1.LabelTopologyZone, map[string]string{"my-affinity": l})
		return l
	})
	g.add("host-anti", fifth, func(b *builder.ClassBuilder) string {
		b.Label("app", "nginx").Apart(corev1.LabelHostname, map[string]string{"app": "nginx"})
		return ""
	})
	pool := builder.CapacityPool("default", cat).Limit(corev1.ResourceCPU, "10000000").Limit(corev1.ResourceMemory, "10000000Gi")
	return plan.Input{View: &capacity.View{Pools: []*capacity.Pool{pool.Obj()}}, Pods: g.pods}
}

// peer draws pods; those that are equal share a class.
type peer struct {
	r       *rand.Rand
	classes map[string]*capacity.Class
	pods    []*capacity.Pod
}

func (g *peer) letter() string { return string(rune('a' + g.r.IntN(7))) }

func (g *peer) add(kind string, count int, build func(b *builder.ClassBuilder) string) {
	for i := range count {
		cpu := []int{100, 250, 500, 1000, 1500}[g.r.IntN(5)]
		mem := []int{100, 256, 512, 1024, 2048, 4096}[g.r.IntN(6)]
		b := builder.Class("").CPU(fmt.Sprintf("%dm", cpu)).Memory(fmt.Sprintf("%dMi", mem))
		id := fmt.Sprintf("%s-%d-%d-%s", kind, cpu, mem, build(b))
		c := g.classes[id]
		if c == nil {
			c = b.Obj()
			c.ID = id
			g.classes[id] = c
		}
		name := fmt.Sprintf("%s-%d", kind, i)
		g.pods = append(g.pods, &capacity.Pod{
			NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: name}, UID: types.UID("uid/" + name), Class: c,
		})
	}
}
