// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bound_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/bench/plan/bound"
	"github.com/slipway-sh/slipway/test/bench/plan/greedy"
	"github.com/slipway-sh/slipway/test/builder"
)

// shop sells three families of 4, 2 and 8 GiB a core from 2 to 16 cores, spot in two of three zones.
func shop() *capacity.Catalog {
	var types []*builder.InstanceTypeBuilder
	for _, f := range []struct {
		name, arch string
		gib        int
		price      float64
	}{{"m", "amd64", 4, 0.048}, {"c", "amd64", 2, 0.0425}, {"r", "amd64", 8, 0.063}, {"mg", "arm64", 4, 0.0385}} {
		for _, cores := range []int{2, 4, 8, 16} {
			p := f.price * float64(cores)
			types = append(types, builder.InstanceType(fmt.Sprintf("%s.%d", f.name, cores)).CPU(fmt.Sprint(cores)).Memory(fmt.Sprintf("%dGi", cores*f.gib)).
				Arch(f.arch).OnDemand(p, "a", "b", "c").Spot(p*0.4, "a").Spot(p*0.5, "b"))
		}
	}
	return builder.Catalog(types...)
}

// randomInput is pods with all the rules the bound knows and some it does not, which some pool can hold.
func randomInput(seed uint64) plan.Input {
	r := rand.New(rand.NewPCG(seed, 1))
	view := &capacity.View{Pools: []*capacity.Pool{
		builder.CapacityPool("dear", shop()).Require(capacity.In(karpv1.CapacityTypeLabelKey, "on-demand")).Daemons(builder.Class("d").CPU("150m").Memory("250Mi").Obj()).Obj(),
		builder.CapacityPool("general", shop()).Daemons(builder.Class("d").CPU("100m").Memory("250Mi").Obj()).Obj(),
		builder.CapacityPool("tainted", shop()).Taint("batch", "true", corev1.TaintEffectNoSchedule).Obj(),
	}}
	in := plan.Input{View: view}
	for i := range 2 + r.IntN(8) {
		app := map[string]string{"app": fmt.Sprint(i)}
		b := builder.Class(fmt.Sprintf("class-%d", i)).CPU(fmt.Sprintf("%dm", 100+r.IntN(3000))).Memory(fmt.Sprintf("%dMi", 64+r.IntN(9000))).Label("app", app["app"])
		switch r.IntN(8) {
		case 0:
			b.ZoneSpread(1+r.IntN(2), app)
		case 1:
			b.NodeSpread(1+r.IntN(3), app)
		case 2:
			b.Apart(corev1.LabelHostname, app)
		case 3:
			b.HostPort(int32(8000 + r.IntN(2)))
		case 4:
			b.Near(corev1.LabelTopologyZone, app)
		case 5:
			b.Term(capacity.In(corev1.LabelArchStable, "amd64"))
		case 6:
			b.Tolerate(corev1.Toleration{Operator: corev1.TolerationOpExists}).Term(capacity.In(corev1.LabelTopologyZone, "a")).Term(capacity.In(corev1.LabelTopologyZone, "c"))
		}
		in.Pods = append(in.Pods, builder.PodsOf(b.Obj(), 1+r.IntN(30))...)
	}
	return in
}

// TestNeverAboveAPlan checks that no plan, the planner's or a baseline's, is cheaper than the bound.
func TestNeverAboveAPlan(t *testing.T) {
	for seed := range uint64(150) {
		in := randomInput(seed)
		r := plan.Solve(in)
		if len(r.Unplaced) > 0 {
			t.Fatalf("seed %d: pod %s is unplaced: %s", seed, r.Unplaced[0].Pod.Name, r.Unplaced[0].Detail)
		}
		p, err := bound.Of(in)
		if err != nil {
			t.Fatal(err)
		}
		b, err := bound.Solve(p, bound.Options{})
		if err != nil {
			t.Fatal(err)
		}
		price := 0.0
		for i := range r.Launches {
			price += r.Launches[i].Price()
		}
		if price < b.Value*(1-1e-9) || price > b.Value*3 {
			t.Errorf("seed %d: the plan costs %.4f, the bound is %.4f", seed, price, b.Value)
		}
		for name, g := range map[string]greedy.Plan{"Karpenter-like": greedy.Karpenter(p), "largest fits": greedy.Largest(p)} {
			// The baselines ignore rules about zones, of which the bound knows some.
			zoned := slices.ContainsFunc(in.Pods, func(p *capacity.Pod) bool {
				return slices.ContainsFunc(p.Class.Spread, func(s capacity.Spread) bool { return s.Key == corev1.LabelTopologyZone })
			})
			if g.Price < b.Value*(1-1e-9) && !zoned {
				t.Errorf("seed %d: %s costs %.4f, the bound is %.4f", seed, name, g.Price, b.Value)
			}
		}
	}
}

func input(classes ...*builder.ClassBuilder) plan.Input {
	in := plan.Input{View: &capacity.View{Pools: []*capacity.Pool{builder.CapacityPool("default", shop()).Obj()}}}
	for _, b := range classes {
		in.Pods = append(in.Pods, builder.PodsOf(b.Obj(), 10)...)
	}
	return in
}

// TestOf checks what becomes of rules: the bound of ten pods of one core with them, on 16 cores at the cheapest.
func TestOf(t *testing.T) {
	app := map[string]string{"app": "web"}
	web := func() *builder.ClassBuilder { return builder.Class("web").CPU("1").Memory("1Gi").Label("app", "web") }
	const spotA, spotB = 0.0385 * 0.4, 0.0385 * 0.5 // a core of arm64
	for _, c := range []struct {
		name  string
		class *builder.ClassBuilder
		want  float64
	}{
		{"no rules", web(), 10 * spotA},
		{"x86 only", web().Term(capacity.In(corev1.LabelArchStable, "amd64")), 10 * 0.0425 * 0.4},
		{"on-demand only", web().Term(capacity.In(karpv1.CapacityTypeLabelKey, "on-demand")), 10 * 0.0385},
		{"one a node: the smallest nodes", web().Apart(corev1.LabelHostname, app), 10 * 2 * spotA},
		{"two a node", web().NodeSpread(2, app), 10 * spotA},
		{"one port a node", web().HostPort(80), 10 * 2 * spotA},
		{"zones: at least (10-2)/3 = 2.67, so 3, in each", web().ZoneSpread(1, app), 4*spotA + 3*spotB + 3*0.0385},
		{"a spread that counts others too is ignored", web().ZoneSpread(1, nil), 10 * spotA},
	} {
		in := input(c.class)
		if c.name[:8] == "a spread" {
			in = plan.Input{View: in.View, Pods: append(in.Pods[:9:9], builder.PodsOf(builder.Class("other").CPU("1").Memory("1Gi").Obj(), 1)...)}
		}
		p, err := bound.Of(in)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		got, err := bound.Solve(p, bound.Options{Gap: 1e-6})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got.Value < c.want*0.9998 || got.Value > c.want*1.0001 {
			t.Errorf("%s: bound %.5f, want %.5f", c.name, got.Value, c.want)
		}
	}
}

func TestOfErrors(t *testing.T) {
	in := input(builder.Class("huge").CPU("64"))
	if _, err := bound.Of(in); err == nil || !strings.Contains(err.Error(), "huge") {
		t.Errorf("pods that fit nowhere: error %v", err)
	}
	in = input(builder.Class("web").CPU("1"))
	in.View.Nodes = append(in.View.Nodes, builder.CapacityNode("n").CPU("4").Obj())
	if _, err := bound.Of(in); err == nil {
		t.Error("a view with nodes has a bound")
	}
}
