// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package mix_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/bench/plan/mix"
)

func maker(t *testing.T) *mix.Maker {
	t.Helper()
	cat, err := mix.EC2(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &mix.Maker{Catalog: cat, Seed: 1, Openb: []mix.TracePod{
		{Millis: 12500, MiB: 57344}, {Millis: 3152, MiB: 5600, GPUs: 1}, {Millis: 32000, MiB: 49152}, {Millis: 88000, MiB: 327680, GPUs: 8},
	}}
}

// describe lists how many pods of what the input has.
func describe(in plan.Input) []string {
	count := map[string]int{}
	for _, p := range in.Pods {
		count[fmt.Sprint(p.Class.ID, p.Class.Requests, p.Class.Terms, len(p.Class.Spread), len(p.Class.Affinity), len(p.Class.AntiAffinity))]++
	}
	var out []string
	for k, n := range count {
		out = append(out, fmt.Sprint(n, " × ", k))
	}
	slices.Sort(out)
	return out
}

// TestMixes checks that every mix has as many pods as asked for, each of which fits some node, and is the same each time.
func TestMixes(t *testing.T) {
	m := maker(t)
	type made struct {
		name string
		make func() (plan.Input, error)
	}
	var all []made
	for _, name := range mix.Names() {
		for _, cores := range []int{16, 0} {
			all = append(all, made{fmt.Sprintf("%s/%d", name, cores), func() (plan.Input, error) { return m.Make(name, 700, cores) }})
		}
	}
	for _, name := range mix.TopologyNames() {
		all = append(all, made{name, func() (plan.Input, error) { return m.Topology(name, 700) }})
	}
	for _, c := range all {
		in, err := c.make()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if len(in.Pods) != 700 {
			t.Errorf("%s: %d pods, want 700", c.name, len(in.Pods))
		}
		classes := map[*capacity.Class]bool{}
		uids := map[string]bool{}
		for _, p := range in.Pods {
			classes[p.Class], uids[string(p.UID)] = true, true
		}
		if len(uids) != len(in.Pods) {
			t.Errorf("%s: %d pods have %d UIDs", c.name, len(in.Pods), len(uids))
		}
		for class := range classes {
			if !mix.Fits(in.View.Pools, class) {
				t.Errorf("%s: a pod of class %s fits no node", c.name, class.ID)
			}
		}
		again, err := c.make()
		if err != nil || !slices.Equal(describe(in), describe(again)) {
			t.Errorf("%s: made twice, it is not the same: %v", c.name, err)
		}
	}
}

// TestRules checks which rules the workloads of the topology mixes have.
func TestRules(t *testing.T) {
	m := maker(t)
	for _, c := range []struct {
		name                                     string
		zoneSpread, hostSpread, anti, affinities int
	}{
		// Of the even ranks, the first has more pods than may be kept apart.
		{"zone-spread", 30, 0, 0, 0}, {"host-spread", 0, 29, 0, 0}, {"host-anti", 0, 0, 29, 0}, {"zone-affinity", 0, 0, 0, 30}, {"all-rules", 18, 12, 12, 6},
	} {
		in, err := m.Topology(c.name, 700)
		if err != nil {
			t.Fatal(err)
		}
		got := c
		got.zoneSpread, got.hostSpread, got.anti, got.affinities = 0, 0, 0, 0
		seen := map[*capacity.Class]bool{}
		for _, p := range in.Pods {
			if seen[p.Class] {
				continue
			}
			seen[p.Class] = true
			for _, s := range p.Class.Spread {
				if s.Key == corev1.LabelTopologyZone {
					got.zoneSpread++
				} else {
					got.hostSpread++
				}
			}
			got.anti += len(p.Class.AntiAffinity)
			got.affinities += len(p.Class.Affinity)
		}
		if got != c {
			t.Errorf("workloads with rules: %+v, want %+v", got, c)
		}
	}
}

// TestPeer checks the shape of the published mix: kinds in equal parts, what is left generic.
func TestPeer(t *testing.T) {
	cat := mix.Peer()
	if len(cat.Types) != 400 || len(cat.Offerings) != 400*5 {
		t.Errorf("%d types with %d offerings, want 400 with 5 each", len(cat.Types), len(cat.Offerings))
	}
	in := mix.PeerPods(cat, 1003, 1)
	count := map[string]int{}
	for _, p := range in.Pods {
		switch c := p.Class; {
		case len(c.AntiAffinity) == 1:
			count["anti "+c.AntiAffinity[0].Key]++
		case len(c.Affinity) == 1 && c.Affinity[0].Matches(c):
			count["affinity "+c.Affinity[0].Key]++
		case len(c.Spread) == 1:
			count["spread "+c.Spread[0].Key]++
		default:
			count["generic"]++
		}
	}
	for kind, want := range map[string]int{
		"generic": 203, "spread " + corev1.LabelTopologyZone: 200, "spread " + corev1.LabelHostname: 200,
		"affinity " + corev1.LabelTopologyZone: 200, "anti " + corev1.LabelHostname: 200,
	} {
		if count[kind] != want {
			t.Errorf("%s: %d pods, want %d", kind, count[kind], want)
		}
	}
}

func TestReadOpenb(t *testing.T) {
	const head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
	got, err := mix.ReadOpenb(strings.NewReader(head + "openb-pod-0000,12000,16384,1,1000\nopenb-pod-0004,32000,49152,0,0\n"))
	want := []mix.TracePod{{Millis: 12000, MiB: 16384, GPUs: 1}, {Millis: 32000, MiB: 49152}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("read %+v, %v, want %+v", got, err, want)
	}
	for name, text := range map[string]string{
		"no pods": head, "no column": "name,cpu_milli\na,1\n", "no number": head + "a,x,1,1,1\n", "ragged": head + "a,1\n",
	} {
		if got, err := mix.ReadOpenb(strings.NewReader(text)); err == nil {
			t.Errorf("%s: read %+v without an error", name, got)
		}
	}
	m := &mix.Maker{}
	if _, err := m.Make("openb", 10, 0); !errors.Is(err, mix.ErrNoTrace) {
		t.Errorf("without the trace: error %v, want %v", err, mix.ErrNoTrace)
	}
}
