// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package builder_test

import (
	"encoding/json"
	"strings"
	"testing"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

// A builder is a template: what was made from it before does not change when it is refined.
func TestObjIsIndependentOfItsBuilder(t *testing.T) {
	tests := map[string]struct {
		obj    func() any
		refine func()
	}{}
	{
		b := builder.Pod("a").CPU("1").Label("k", "v")
		tests["pod"] = struct {
			obj    func() any
			refine func()
		}{func() any { return b.Obj() }, func() { b.CPU("2").Label("k", "w").NodeAffinity(builder.In("x", "y")) }}
	}
	{
		b := builder.NodePool("a").Limit(corev1.ResourceCPU, "1").NodeLabel("k", "v").Ready()
		tests["node pool"] = struct {
			obj    func() any
			refine func()
		}{func() any { return b.Obj() }, func() { b.Limit(corev1.ResourceCPU, "2").NodeLabel("k", "w").NotReady("NodeClassReady", "r", "m") }}
	}
	{
		b := builder.InstanceType("m5.large").CPU("1").Absent("x").OnDemand(1, "a")
		tests["instance type"] = struct {
			obj    func() any
			refine func()
		}{func() any { return b.Obj() }, func() { b.CPU("2").Label("k", "w").Absent("y").Spot(2, "b") }}
	}
	{
		b := builder.CapacityPool("a", nil).Limit(corev1.ResourceCPU, "1").Taint("a", "b", corev1.TaintEffectNoSchedule)
		tests["capacity pool"] = struct {
			obj    func() any
			refine func()
		}{func() any { p := b.Obj(); p.Requirements = nil; return p }, func() {
			b.Limit(corev1.ResourceCPU, "2").Taint("c", "d", corev1.TaintEffectNoSchedule).LimitNodes(3)
		}}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := tt.obj()
			want := asJSON(t, before)
			tt.refine()
			if diff := cmp.Diff(want, asJSON(t, before)); diff != "" {
				t.Errorf("refining the builder changed an object it had made (-before +after):\n%s", diff)
			}
			if asJSON(t, tt.obj()) == want {
				t.Error("refining the builder had no effect on the next object")
			}
		})
	}
}

// Karpenter's own readiness rules must see what Ready and NotReady build.
func TestConditions(t *testing.T) {
	tests := map[string]struct {
		got  interface{ IsTrue() bool }
		want bool
	}{
		"new pool":           {builder.NodePool("p").Obj().StatusConditions().Root(), false},
		"ready pool":         {builder.NodePool("p").Ready().Obj().StatusConditions().Root(), true},
		"unready pool":       {builder.NodePool("p").Ready().NotReady(karpv1.ConditionTypeNodeClassReady, "NotFound", "").Obj().StatusConditions().Root(), false},
		"ready class":        {builder.EC2NodeClass("c").Ready().Obj().StatusConditions().Root(), true},
		"unready class":      {builder.EC2NodeClass("c").Ready().NotReady(v1.ConditionTypeSubnetsReady, "NotFound", "").Obj().StatusConditions().Root(), false},
		"launched claim":     {launched().Obj().StatusConditions().Root(), false},
		"initialized claim":  {launched().Registered("n").Initialized().Obj().StatusConditions().Root(), true},
		"launched condition": {launched().Obj().StatusConditions().Get(karpv1.ConditionTypeLaunched), true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.got.IsTrue(); got != tt.want {
				t.Errorf("IsTrue() = %t, want %t", got, tt.want)
			}
		})
	}
}

func launched() *builder.NodeClaimBuilder {
	return builder.NodeClaim("c").Pool("p").Launched("aws:///us-east-1a/i-1", "m5.large", "us-east-1a", "spot")
}

// The CRDs refuse null where a list is required.
func TestRequiredListsAreNotNull(t *testing.T) {
	for name, obj := range map[string]any{
		"NodePool":     builder.NodePool("p").Obj(),
		"NodeClaim":    builder.NodeClaim("c").Obj(),
		"EC2NodeClass": builder.EC2NodeClass("c").Obj().Spec.SubnetSelectorTerms,
	} {
		if s := asJSON(t, obj); strings.Contains(s, `"requirements": null`) || s == "null" {
			t.Errorf("%s has a null list:\n%s", name, s)
		}
	}
}

func TestPodRequestsAndPlacement(t *testing.T) {
	p := builder.Pod("p").CPU("1").Sidecar("mesh", "100m", "64Mi").InitContainer("migrate", "2", "1Gi").
		PodRequest(corev1.ResourceCPU, "3").HostPort(8080).
		NodeAffinity(builder.In("a", "1")).NodeAffinity(builder.NotIn("b", "2")).
		Near(corev1.LabelHostname, map[string]string{"app": "cache"}).
		Apart(corev1.LabelTopologyZone, map[string]string{"app": "web"}).Obj()

	want := map[string]any{
		"init containers": 2, "sidecar restarts": corev1.ContainerRestartPolicyAlways, "pod CPU": "3", "host port": int32(8080),
		"terms": 2, "near": corev1.LabelHostname, "apart": corev1.LabelTopologyZone,
	}
	a := p.Spec.Affinity
	got := map[string]any{
		"init containers":  len(p.Spec.InitContainers),
		"sidecar restarts": *p.Spec.InitContainers[0].RestartPolicy,
		"pod CPU":          p.Spec.Resources.Requests.Cpu().String(),
		"host port":        p.Spec.Containers[0].Ports[0].HostPort,
		"terms":            len(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms),
		"near":             a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].TopologyKey,
		"apart":            a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].TopologyKey,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
}

func TestInstanceTypeLabels(t *testing.T) {
	tests := map[string]struct {
		wantCategory, wantGeneration string
	}{
		"m5d.large":        {"m", "5"},
		"inf2.xlarge":      {"inf", "2"},
		"m7g.metal-48xl":   {"m", "7"},
		"custom-without":   {"", ""},
		"u-6tb1.112xlarge": {"u", "1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := builder.InstanceType(name).Obj().Labels
			if got := l["karpenter.k8s.aws/instance-category"]; got != tt.wantCategory {
				t.Errorf("category = %q, want %q", got, tt.wantCategory)
			}
			if got := l["karpenter.k8s.aws/instance-generation"]; got != tt.wantGeneration {
				t.Errorf("generation = %q, want %q", got, tt.wantGeneration)
			}
		})
	}
}

func TestAllocatableDefaultsToCapacity(t *testing.T) {
	it := builder.InstanceType("m5.large").CPU("2").Memory("8Gi").Allocatable(corev1.ResourceCPU, "1930m").Obj()
	want := capacity.Resources{CPU: 1930, Memory: 8 << 30, Pods: 110}
	if diff := cmp.Diff(want, it.Allocatable); diff != "" {
		t.Errorf("Allocatable (-want +got):\n%s", diff)
	}
	if it.Capacity.CPU != 2000 {
		t.Errorf("Capacity.CPU = %d, want 2000", it.Capacity.CPU)
	}
}

func TestCapacityPoolOutOf(t *testing.T) {
	catalog := builder.Catalog(builder.InstanceType("m5.large").OnDemand(0.1, "a", "b").Spot(0.03, "a"))
	pool := builder.CapacityPool("p", catalog).OutOf(func(k capacity.OfferingKey) bool { return k.Zone == "a" }).Obj()

	if got := catalog.Values(corev1.LabelTopologyZone, pool.Available); !cmp.Equal(got, []string{"b"}) {
		t.Errorf("zones with an available offering = %v, want [b]", got)
	}
}

func TestClassTerms(t *testing.T) {
	free := builder.Class("a").Obj()
	if len(free.Terms) != 1 || len(free.Terms[0]) != 0 {
		t.Errorf("Terms of an unconstrained class = %v, want one empty term", free.Terms)
	}
	if free.Requests.Pods != 1 {
		t.Errorf("Requests.Pods = %d, want 1", free.Requests.Pods)
	}
	either := builder.Class("b").Term(capacity.In("x", "1")).Term(capacity.In("y", "2")).Obj()
	if len(either.Terms) != 2 {
		t.Errorf("len(Terms) = %d, want 2", len(either.Terms))
	}
	labels := map[string]string{"app": "web"}
	web := builder.Class("web").Label("app", "web").ZoneSpread(1, labels).Apart(corev1.LabelHostname, labels).Obj()
	if !web.Spread[0].Matches("default", web) || !web.AntiAffinity[0].Matches(web) {
		t.Error("the class's own spread constraint and anti-affinity term do not select its pods")
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
