// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"math"
	"testing"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

func TestBlocked(t *testing.T) {
	ready := func() *builder.EC2NodeClassBuilder { return builder.EC2NodeClass("default").Ready() }
	other := builder.NodePool("p").Obj()
	other.Spec.Template.Spec.NodeClassRef.Kind = "KwokNodeClass"
	for name, tc := range map[string]struct {
		pool  *karpv1.NodePool
		class *builder.EC2NodeClassBuilder
		want  string
	}{
		"ready":                            {builder.NodePool("p").Obj(), ready(), ""},
		"pool not ready, but its class is": {builder.NodePool("p").NotReady("ValidationSucceeded", "x", "y").Obj(), ready(), ""},
		"pool being deleted":               {builder.NodePool("p").Finalizer("x").Deleted(builder.Epoch()).Obj(), ready(), `NodePool "p" is being deleted`},
		"foreign kind":                     {other, ready(), `NodePool "p": spec.template.spec.nodeClassRef.kind "KwokNodeClass" is not one Slipway can launch (EC2NodeClass)`},
		"class missing":                    {builder.NodePool("p").Obj(), nil, `EC2NodeClass "default" does not exist`},
		"class being deleted":              {builder.NodePool("p").Obj(), ready().Deleted(builder.Epoch()), `EC2NodeClass "default" is being deleted`},
		"class not looked at":              {builder.NodePool("p").Obj(), builder.EC2NodeClass("default"), `EC2NodeClass "default" has not been resolved yet`},
		"class with a reason":              {builder.NodePool("p").Obj(), builder.EC2NodeClass("default").NotReady(v1.ConditionTypeSubnetsReady, "SubnetsNotFound", "no subnet matches"), `EC2NodeClass "default" is not ready: `},
	} {
		t.Run(name, func(t *testing.T) {
			var class *v1.EC2NodeClass
			if tc.class != nil {
				class = tc.class.Obj()
			}
			got := view.Blocked(tc.pool, class)
			if name == "class with a reason" { // the condition library words the summary
				if len(got) <= len(tc.want) || got[:len(tc.want)] != tc.want {
					t.Errorf("Blocked = %q, want it to begin with %q and say more", got, tc.want)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Blocked (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPools(t *testing.T) {
	invalid := builder.NodePool("invalid").Obj()
	invalid.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: "k", Operator: "Near"}}
	v := build(t, view.Pending{},
		builder.NodePool("b").Weight(5).Require(builder.In(corev1.LabelArchStable, "amd64")).RequireMin(2, builder.Requirement("karpenter.k8s.aws/instance-family", corev1.NodeSelectorOpExists)).
			NodeLabel("team", "x").Taint("t", "", noSchedule).StartupTaint("s", "", noSchedule).Limit("cpu", "8").Limit("nodes", "3").Obj(),
		builder.NodePool("a").Weight(5).Class("missing").Obj(), invalid, builder.NodePool("static").Replicas(2).Obj(),
	)
	type poolShape struct {
		Name, Blocked, Requirements string
		Weight                      int32
		Limits                      string
		Nodes                       int64 // limit, -1 for none
		MinValues                   int
		Offerings                   int
	}
	var got []poolShape
	for _, p := range v.Pools {
		s := poolShape{
			Name: p.Name, Blocked: p.Blocked, Requirements: p.Requirements.String(), Weight: p.Weight, Limits: capacity.FromList(p.Limits).String(), Nodes: -1,
			MinValues: p.Requirements["karpenter.k8s.aws/instance-family"].MinValues, Offerings: p.Available.Len(),
		}
		if p.LimitNodes != nil {
			s.Nodes = *p.LimitNodes
		}
		got = append(got, s)
	}
	want := []poolShape{
		{Name: "a", Weight: 5, Nodes: -1, Blocked: `EC2NodeClass "missing" does not exist`, Requirements: "karpenter.k8s.aws/ec2nodeclass In [missing], karpenter.sh/nodepool In [a]"},
		{Name: "b", Weight: 5, Nodes: 3, Limits: "cpu=8", MinValues: 2, Offerings: 7, Requirements: "karpenter.k8s.aws/ec2nodeclass In [default], karpenter.k8s.aws/instance-family Exists minValues 2, karpenter.sh/nodepool In [b], kubernetes.io/arch In [amd64], team In [x]"},
		{Name: "invalid", Nodes: -1, Blocked: `NodePool "invalid": spec.template.spec.requirements: requirement on "k": unknown operator "Near" (use In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte)`},
		{Name: "p", Nodes: -1, Offerings: 7, Requirements: "karpenter.k8s.aws/ec2nodeclass In [default], karpenter.sh/nodepool In [p]"},
		{Name: "static", Nodes: -1, Blocked: `NodePool "static" keeps a fixed number of nodes (spec.replicas)`, Requirements: "karpenter.k8s.aws/ec2nodeclass In [default], karpenter.sh/nodepool In [static]"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
}

// TestPoolsOfARival checks that pools are not bought into while somebody else launches the NodeClaims of their class.
func TestPoolsOfARival(t *testing.T) {
	own := builder.NodePool("own").Obj()
	own.Spec.Template.Spec.NodeClassRef.Group = v1alpha1.Group
	c := source.New(builder.NodePool("karpenters").Obj(), own, builder.EC2NodeClass(builder.DefaultClass).Ready().Obj())
	c.Sell(builder.DefaultClass, shop())
	src := c.Source()
	rival := "lease karpenter/x is held by y"
	src.Rival = func() string { return rival }
	b := view.New(src)
	blocked := func() map[string]string {
		v, err := b.Build(t.Context(), view.Pending{})
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, p := range v.Pools {
			out[p.Name] = p.Blocked
		}
		return out
	}
	want := map[string]string{"own": "", "karpenters": `NodePool "karpenters" has a class of group karpenter.k8s.aws, which is not Slipway's now: lease karpenter/x is held by y`}
	if diff := cmp.Diff(want, blocked()); diff != "" {
		t.Errorf("beside a rival (-want +got):\n%s", diff)
	}
	rival = ""
	if diff := cmp.Diff(map[string]string{"own": "", "karpenters": ""}, blocked()); diff != "" {
		t.Errorf("without one (-want +got):\n%s", diff)
	}
}

func TestPoolAnnotations(t *testing.T) {
	np := builder.NodePool("said").Obj()
	np.Annotations = map[string]string{capacity.EvennessAnnotation: "50", capacity.LookAheadAnnotation: "many"}
	p := build(t, view.Pending{}, np).Pool("said")
	if p.Evenness == nil || *p.Evenness != 0.5 || p.LookAhead == nil || *p.LookAhead != 0 {
		t.Errorf("evenness %v, look-ahead %v; want 0.5 and, as it cannot be read, 0", p.Evenness, p.LookAhead)
	}
}

func TestPoolUsage(t *testing.T) {
	for name, tc := range map[string]struct {
		objects []runtime.Object
		want    string
		nodes   int64
	}{
		"nothing bought":                      {want: ""},
		"planned: the largest it may become":  {[]runtime.Object{builder.NodeClaim("c").Pool("p").Obj()}, "cpu=4 memory=16Gi pods=58", 1},
		"launched: what the claim says":       {[]runtime.Object{launched().Obj()}, "cpu=2 memory=8Gi pods=29", 1},
		"a booting node that reports nothing": {[]runtime.Object{launched().Obj(), builder.Node("n1").ProviderID("aws:///a/i-1").NotReady().Obj()}, "cpu=2 memory=8Gi pods=110", 1},
		"leaving: until it is gone":           {[]runtime.Object{launched().Deleted(builder.Epoch()).Obj(), joined().Obj()}, "cpu=2 memory=8Gi pods=110", 1},
		"another pool's claim":                {[]runtime.Object{builder.NodeClaim("c").Pool("q").Obj()}, "", 0},
		"a node that no claim stands for":     {[]runtime.Object{builder.Node("other").CPU("64").Label(karpv1.NodePoolLabelKey, "p").Obj()}, "", 0},
		"the sum of all":                      {[]runtime.Object{launched().Obj(), builder.NodeClaim("c").Pool("p").Require(builder.In(corev1.LabelInstanceTypeStable, "m5.large")).Obj()}, "cpu=4 memory=16Gi pods=58", 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := build(t, view.Pending{}, tc.objects...).Pool("p")
			if got := p.Usage.String(); got != tc.want || p.Nodes != tc.nodes {
				t.Errorf("usage = %q of %d nodes, want %q of %d", got, p.Nodes, tc.want, tc.nodes)
			}
		})
	}
}

func TestReservations(t *testing.T) {
	c := source.New(builder.NodePool("p").Obj(), builder.EC2NodeClass(builder.DefaultClass).Ready().Obj())
	c.Sell(builder.DefaultClass, builder.Catalog(builder.InstanceType("m5.large").CPU("2").OnDemand(0.1, "a").
		Offering(capacity.Offering{Zone: "a", CapacityType: karpv1.CapacityTypeReserved, ReservationID: "cr-1", Price: 0.001})))
	src := c.Source()
	reservations := func() map[string]int {
		v, err := view.New(src).Build(t.Context(), view.Pending{})
		if err != nil {
			t.Fatal(err)
		}
		return v.Pool("p").Reservations
	}
	if got := reservations(); got != nil {
		t.Errorf("reservations = %v although nobody counts them", got)
	}
	src.Reserved = func(string) int { return 3 }
	if diff := cmp.Diff(map[string]int{"cr-1": 3}, reservations()); diff != "" {
		t.Errorf("reservations (-want +got):\n%s", diff)
	}
}

// TestAbsurdLimits checks that a limit nobody can reach is one, and none that wraps around.
func TestAbsurdLimits(t *testing.T) {
	p := build(t, view.Pending{}, builder.NodePool("b").Limit("cpu", "1e30").Limit("nodes", "1e30").Obj()).Pool("b")
	if got := capacity.FromList(p.Limits).CPU; got != math.MaxInt64 {
		t.Errorf("CPU limit = %d", got)
	}
	if *p.LimitNodes != math.MaxInt64 {
		t.Errorf("node limit = %d", *p.LimitNodes)
	}
}
