// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package interruption

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// of are requests of milli CPUs and GiB.
func of(cpu, memory int64) capacity.Resources {
	return capacity.Resources{CPU: cpu, Memory: memory << 30, Pods: 1}
}

// node has room for milli CPUs and GiB, and pods of those CPUs on it, a GiB each.
func node(cpu, memory int64, pods ...int64) load {
	l := load{room: capacity.Resources{CPU: cpu, Memory: memory << 30, Pods: 30}, daemons: of(100, 1)}
	for _, p := range pods {
		l.pods = append(l.pods, of(p, 1))
	}
	return l
}

func apart(l load) load {
	l.alone = true
	return l
}

func TestPack(t *testing.T) {
	gpu := node(4000, 16, 1000)
	gpu.pods[0].Extended = []capacity.Quantity{{Name: "nvidia.com/gpu", Value: 1}}
	for _, tc := range []struct {
		name  string
		loads []load
		want  []string // cpu of each bin, with the nodes it is for
	}{
		{"one node", []load{node(4000, 16, 1000, 500)}, []string{"1600 [0]"}},
		{"half empty nodes share", []load{node(4000, 16, 1500), node(4000, 16, 1500), node(4000, 16, 1500), node(4000, 16, 1500)}, []string{"3100 [0 2]", "3100 [1 3]"}},
		{"evenly, not one full and one nearly empty", []load{node(4000, 16, 1000, 1000, 1000), node(4000, 16, 1000)}, []string{"2100 [0]", "2100 [0 1]"}},
		{"no larger than what was there", []load{node(4000, 16, 3900), node(8000, 16, 500)}, []string{"4500 [0 1]"}},
		{"selective pods stay by themselves", []load{apart(node(4000, 16, 1000)), apart(node(4000, 16, 1500)), node(4000, 16, 1000), node(4000, 16, 500)}, []string{"1600 [2 3]", "1600 [0]", "1600 [1]"}},
		{"a node that has more on it than room is taken as it is", []load{node(1000, 16, 1500), node(1000, 16, 500)}, []string{"600 [1]", "1600 [0]"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, b := range pack(tc.loads, largest(tc.loads)) {
				slices.Sort(b.loads)
				got = append(got, fmt.Sprint(b.requests.CPU, " ", b.loads))
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("bins (-want +got):\n%s", d)
			}
		})
	}
}

// TestPackHoldsEverything checks on random nodes that all pods have a place, on no more nodes than before, none larger.
func TestPackHoldsEverything(t *testing.T) {
	for seed := range 300 {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		var loads []load
		var all capacity.Resources
		biggest := int64(0)
		for range 1 + r.IntN(20) {
			l := load{room: capacity.Resources{CPU: 4000 << r.IntN(3), Memory: 16 << 30, Pods: 20}, daemons: of(int64(r.IntN(200)), 0)}
			free := l.room.Sub(l.daemons)
			for range r.IntN(8) {
				p := of(int64(100+r.IntN(2000)), int64(r.IntN(3)))
				if p.Fits(free) {
					l.pods, free = append(l.pods, p), free.Sub(p)
				}
			}
			l.alone = r.IntN(5) == 0
			for _, p := range l.pods {
				all = all.Add(p)
			}
			biggest = max(biggest, l.room.CPU)
			loads = append(loads, l)
		}
		bins := pack(loads, largest(loads))
		var packed capacity.Resources
		for _, b := range bins {
			packed = packed.Add(b.pods)
			if !b.pods.Add(b.daemons).Fits(b.requests) || b.requests.CPU > biggest {
				t.Errorf("seed %d: a bin of %s holds %s", seed, b.requests, b.pods)
			}
		}
		if !packed.Equal(all) || len(bins) > len(loads) {
			t.Errorf("seed %d: %s in %d bins, want %s in at most %d", seed, packed, len(bins), all, len(loads))
		}
	}
}
