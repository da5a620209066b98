// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkVerify verifies a burst of 1,000 pods on 20 new nodes, in clusters of
// 100 and 1,000 nodes with 5 pods each. ns/pod is the figure to look at.
func BenchmarkVerify(b *testing.B) {
	for _, size := range []int{100, 1000} {
		var objects []runtime.Object
		for i := range size {
			n := node(fmt.Sprintf("old-%d", i), string(rune('a'+i%3)), "16")
			objects = append(objects, n)
			for k := range 5 {
				objects = append(objects, on(plain("old")(fmt.Sprintf("x-%d-%d", i, k)), n.Name))
			}
		}
		bench := newBench(b, nil, nil, objects...)
		for _, kind := range []struct {
			name string
			make func(int) func(string) *corev1.Pod
		}{
			{"plain", func(int) func(string) *corev1.Pod { return plain("web") }},
			{"zone-spread", func(int) func(string) *corev1.Pod { return spreadBy(zoneKey, "web", 100) }},
			{"zone-spread-1", func(int) func(string) *corev1.Pod { return spreadBy(zoneKey, "web", 1) }},
			{"zone-affinity", func(int) func(string) *corev1.Pod { return together(zoneKey, "web", "web") }},
			{"all-different", func(i int) func(string) *corev1.Pod { return plain(fmt.Sprintf("web-%d", i)) }},
		} {
			b.Run(fmt.Sprintf("nodes=%d/%s", size, kind.name), func(b *testing.B) {
				plan := make([]planned, 20)
				for i := range plan {
					plan[i].Node = node(fmt.Sprintf("new-%d", i), string(rune('a'+i%3)), "64")
				}
				const pods = 1000
				for i := range pods {
					p := kind.make(i)(fmt.Sprintf("p-%d", i))
					p.UID = types.UID(p.Name)
					plan[i%len(plan)].Pods = append(plan[i%len(plan)].Pods, p)
				}
				for b.Loop() {
					if got := bench.verify(b, plan); kind.name == "plain" && len(got) > 0 {
						b.Fatalf("%d pods rejected, first %+v", len(got), verdicts(got)[0])
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/pods, "ns/pod")
			})
		}
	}
}
