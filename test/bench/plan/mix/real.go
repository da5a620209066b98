// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/builder"
)

// workloads is how many workloads the real mix has.
const workloads = 60

// frequent are the twelve most frequent sizes of CPU-only pods in openb_pod_list_default.csv, with how many pods have them.
func frequent() []struct {
	shape

	pods int
} {
	return []struct {
		shape

		pods int
	}{
		{shape{millis: 12500, mib: 57344}, 364},
		{shape{millis: 32000, mib: 49152}, 284},
		{shape{millis: 8000, mib: 30517}, 163},
		{shape{millis: 15400, mib: 51200}, 120},
		{shape{millis: 16500, mib: 51200}, 95},
		{shape{millis: 11400, mib: 57344}, 11},
		{shape{millis: 8000, mib: 15625}, 11},
		{shape{millis: 16000, mib: 31250}, 8},
		{shape{millis: 8000, mib: 31250}, 5},
		{shape{millis: 12000, mib: 24576}, 4},
		{shape{millis: 32000, mib: 62500}, 3},
		{shape{millis: 20000, mib: 65536}, 2},
	}
}

// draw is the size of one workload of the real mix, its source by turns.
func draw(r *rand.Rand, i int) shape {
	switch i % 3 {
	case 0: // a small service
		cpu := []int{100, 200, 250, 500, 500, 1000, 1000, 2000, 4000}[r.IntN(9)]
		return shape{millis: cpu, mib: int(float64(cpu) / 1000 * 1024 * []float64{0.5, 1, 2, 2, 4, 4, 8, 16}[r.IntN(8)])}
	case 1: // a machine of Azure's
		cores := []int{1, 1, 1, 1, 2, 2, 2, 2, 4, 8}[r.IntN(10)]
		return shape{millis: 1000 * cores, mib: cores * []int{1792, 1792, 3584, 3584, 7168}[r.IntN(5)]}
	default: // a CPU-only pod of Alibaba's GPU cluster
		all := frequent()
		total := 0
		for _, f := range all {
			total += f.pods
		}
		k := r.IntN(total)
		for _, f := range all {
			if k -= f.pods; k < 0 {
				return f.shape
			}
		}
		return all[0].shape
	}
}

// workloads adds n pods of 60 workloads. Large pods are rare: those of the GPU cluster get the last third of the ranks.
// Half of the workloads have images for x86 only, one in ten for arm64 only; one in five needs on-demand nodes and one in
// five tolerates the batch pool. with, if given, adds rules to the class of a rank.
func (m *Maker) workloads(in *plan.Input, r *rand.Rand, n int, with func(rank, pods int, b *builder.ClassBuilder)) error {
	counts := zipf(n, workloads)
	for rank := range workloads {
		kind := rank % 2
		if rank >= workloads*2/3 {
			kind = 2
		}
		var c *capacity.Class
		for tries := 0; c == nil; tries++ {
			if tries == 100 {
				return fmt.Errorf("no size drawn for workload %d fits any node", rank)
			}
			s := draw(r, kind)
			b := s.builder(fmt.Sprintf("workload-%02d", rank)).Label("app", fmt.Sprintf("workload-%02d", rank))
			b.Term(habits(r)...)
			if r.IntN(5) == 0 {
				b.Tolerate(tolerate(batchTaint))
			}
			if with != nil {
				with(rank, counts[rank], b)
			}
			if c = b.Obj(); !Fits(in.View.Pools, c) {
				c = nil
			}
		}
		in.Pods = append(in.Pods, builder.PodsOf(c, counts[rank])...)
	}
	return nil
}

// habits are what a workload asks of its node's labels.
func habits(r *rand.Rand) []capacity.Requirement {
	var out []capacity.Requirement
	switch a := r.IntN(10); {
	case a < 5:
		out = append(out, capacity.In(corev1.LabelArchStable, "amd64"))
	case a == 5:
		out = append(out, capacity.In(corev1.LabelArchStable, "arm64"))
	}
	if r.IntN(5) == 0 {
		out = append(out, capacity.In(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeOnDemand))
	}
	return out
}
