// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

const noSchedule = corev1.TaintEffectNoSchedule

// launched is a claim with an instance, i-1.
func launched() *builder.NodeClaimBuilder {
	return builder.NodeClaim("c1").UID("c1").Pool("p").Launched("aws:///a/i-1", "m5.large", "a", "spot").
		Resource("cpu", "2").Resource("memory", "8Gi").Resource("pods", "29")
}

// joined is the node of that instance.
func joined() *builder.NodeBuilder {
	return builder.Node("n1").ProviderID("aws:///a/i-1").CPU("2").Memory("8Gi").Label(karpv1.NodeRegisteredLabelKey, "true")
}

func TestPhase(t *testing.T) {
	gone := builder.Epoch()
	for name, tc := range map[string]struct {
		claim *builder.NodeClaimBuilder
		node  *builder.NodeBuilder
		want  capacity.Phase
	}{
		"claim written":                      {builder.NodeClaim("c1"), nil, capacity.Planned},
		"instance known":                     {launched(), nil, capacity.Launched},
		"node joined, not ready":             {launched(), joined().NotReady(), capacity.Launched},
		"not registered":                     {launched(), builder.Node("n1"), capacity.Launched},
		"startup taint":                      {launched().StartupTaint("cni", "starting", noSchedule), joined().Taint("cni", "another-value", noSchedule), capacity.Launched},
		"taint of a booting node":            {launched(), joined().Taint("node.cloudprovider.kubernetes.io/uninitialized", "true", noSchedule), capacity.Launched},
		"unregistered taint":                 {launched(), joined().Taint(karpv1.UnregisteredTaintKey, "", corev1.TaintEffectNoExecute), capacity.Launched},
		"ready, not-ready NoExecute lingers": {launched(), joined().Taint(corev1.TaintNodeNotReady, "", corev1.TaintEffectNoExecute), capacity.Usable},
		"ready, not-ready NoSchedule there":  {launched(), joined().Taint(corev1.TaintNodeNotReady, "", noSchedule), capacity.Launched},
		"readiness gate":                     {launched(), joined().Taint("readiness.k8s.io/network", "", noSchedule), capacity.Launched},
		"device not reported":                {launched().Request("nvidia.com/gpu", "1"), joined(), capacity.Launched},
		"device reported":                    {launched().Request("nvidia.com/gpu", "1"), joined().Resource("nvidia.com/gpu", "1"), capacity.Usable},
		"ready":                              {launched(), joined(), capacity.Usable},
		"a declared taint":                   {launched().Taint("team", "x", noSchedule), joined().Taint("team", "y", noSchedule), capacity.Usable},
		"a taint nobody declared":            {launched(), joined().Taint("agent", "starting", noSchedule), capacity.Launched},
		"one that keeps nobody off":          {launched(), joined().Taint("agent", "starting", corev1.TaintEffectPreferNoSchedule), capacity.Usable},
		"one that came later":                {launched(), joined().Pool("p").Taint("agent", "starting", noSchedule), capacity.Usable},
		"one of the node's state":            {launched(), joined().Taint(corev1.TaintNodeMemoryPressure, "", noSchedule), capacity.Usable},
		"one nobody syncs either":            {launched(), joined().Label(karpv1.NodeDoNotSyncTaintsLabelKey, "true").Taint("agent", "starting", noSchedule), capacity.Launched},
		"not ready any more":                 {launched(), joined().Pool("p").NotReady(), capacity.Usable},
		"startup taint put on again":         {launched().StartupTaint("cni", "", noSchedule), joined().Pool("p").Taint("cni", "", noSchedule), capacity.Usable},
		"cordoned":                           {launched(), joined().Cordoned(), capacity.Leaving},
		"disrupted":                          {launched(), joined().Taint(karpv1.DisruptedTaintKey, "", noSchedule), capacity.Leaving},
		"node being deleted":                 {launched(), joined().Deleted(gone), capacity.Leaving},
		"claim being deleted":                {launched().Deleted(gone), joined(), capacity.Leaving},
		"deleted before launch":              {builder.NodeClaim("c1").Deleted(gone), nil, capacity.Leaving},
	} {
		t.Run(name, func(t *testing.T) {
			var n *corev1.Node
			if tc.node != nil {
				n = tc.node.Obj()
			}
			if got := view.Phase(tc.claim.Obj(), n); got != tc.want {
				t.Errorf("Phase = %s, want %s", got, tc.want)
			}
		})
	}
}

// TestAdmits checks which pods need not wait for a taint that nobody declared.
func TestAdmits(t *testing.T) {
	tolerant := builder.Pod("tolerant").Tolerate(corev1.Toleration{Key: "agent", Operator: corev1.TolerationOpExists}).Obj()
	plain := builder.Pod("plain").Obj()
	tainted := joined().Taint("agent", "", noSchedule)
	for name, tc := range map[string]struct {
		node *builder.NodeBuilder
		pod  *corev1.Pod
		want bool
	}{
		"it tolerates the taint":         {tainted, tolerant, true},
		"it does not":                    {tainted, plain, false},
		"the node is not up either":      {joined().NotReady().Taint("agent", "", noSchedule), tolerant, false},
		"there is no such taint at all":  {joined(), plain, true},
		"another one beside, the second": {joined().Taint("agent", "", noSchedule).Taint("other", "", noSchedule), tolerant, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := view.Admits(launched().Obj(), tc.node.Obj(), tc.pod); got != tc.want {
				t.Errorf("Admits = %v, want %v", got, tc.want)
			}
		})
	}
}

// shop sells an amd64 type in two zones and sizes, and an arm64 one in one zone.
func shop() *capacity.Catalog {
	return builder.Catalog(
		builder.InstanceType("m5.large").CPU("2").Memory("8Gi").Resource("pods", "29").OnDemand(0.1, "a", "b").Spot(0.04, "a", "b"),
		builder.InstanceType("m5.xlarge").CPU("4").Memory("16Gi").Resource("pods", "58").OnDemand(0.2, "a", "b"),
		builder.InstanceType("m6g.large").CPU("2").Memory("7Gi").Resource("pods", "29").Arch("arm64").OnDemand(0.08, "a"),
	)
}

// nodeShape is a node in words.
type nodeShape struct {
	ID, Pool, Phase, Where, Open string
	Taints                       []string
	Capacity, Allocatable, Used  string
	Pods                         []string
}

func nodeShapeOf(n *capacity.Node) nodeShape {
	s := nodeShape{
		ID: n.ID(), Pool: n.Pool, Phase: n.Phase.String(), Open: n.Requirements.String(),
		Capacity: n.Capacity.String(), Allocatable: n.Allocatable.String(), Used: n.Used.String(),
	}
	if n.InstanceType != "" || n.Zone != "" {
		s.Where = fmt.Sprintf("%s %s %s %.2f", n.InstanceType, n.Zone, n.CapacityType, n.Price)
	}
	for _, t := range n.Taints {
		s.Taints = append(s.Taints, t.Key)
	}
	for c, k := range n.Pods {
		s.Pods = append(s.Pods, fmt.Sprintf("%d×%s", k, c.Labels["app"]))
	}
	for c, k := range n.Terminating {
		s.Pods = append(s.Pods, fmt.Sprintf("%d×%s ends", k, c.Labels["app"]))
	}
	slices.Sort(s.Pods)
	return s
}

// build makes the view of a cluster with pool p, class default ready, and the shop's catalogue.
func build(t *testing.T, pending view.Pending, objects ...runtime.Object) *capacity.View {
	t.Helper()
	c := source.New(append(objects, builder.NodePool("p").Obj(), builder.EC2NodeClass(builder.DefaultClass).Ready().Obj())...)
	c.Sell(builder.DefaultClass, shop())
	v, err := view.New(c.Source()).Build(t.Context(), pending)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestNodes(t *testing.T) {
	daemon := func(name, cpu string) *builder.DaemonSetBuilder {
		return builder.DaemonSet(name).UID(name).Template(builder.Pod(name).CPU(cpu).NodeSelector(corev1.LabelOSStable, "linux"))
	}
	daemonPod := func(name, cpu string) *builder.PodBuilder {
		return builder.Pod(name).Namespace("kube-system").UID("pod-"+name).Label("app", name).CPU(cpu).On("n1").
			OwnedBy(metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}, name, name)
	}
	for name, tc := range map[string]struct {
		objects []runtime.Object
		pending view.Pending
		want    []nodeShape
	}{
		"a node Slipway did not buy": {
			objects: []runtime.Object{builder.Node("other").CPU("4").Taint("x", "", noSchedule).Obj(), builder.Pod("a").UID("a").Label("app", "a").CPU("1").On("other").Obj()},
			want:    []nodeShape{{ID: "other", Phase: "Usable", Taints: []string{"x"}, Capacity: "cpu=4 pods=110", Allocatable: "cpu=4 pods=110", Used: "cpu=1 pods=1", Pods: []string{"1×a"}}},
		},
		"finished pods hold no place": {
			objects: []runtime.Object{builder.Node("other").CPU("4").Obj(), builder.Pod("a").UID("a").CPU("1").On("other").Phase(corev1.PodSucceeded).Obj(), builder.Pod("b").UID("b").CPU("1").On("other").Phase(corev1.PodFailed).Obj()},
			want:    []nodeShape{{ID: "other", Phase: "Usable", Capacity: "cpu=4 pods=110", Allocatable: "cpu=4 pods=110"}},
		},
		"pods that are being deleted hold their place and are told apart": {
			objects: []runtime.Object{
				builder.Node("other").CPU("4").Obj(), builder.Pod("a").UID("a").Label("app", "a").CPU("1").On("other").Obj(),
				builder.Pod("b").UID("b").Label("app", "a").CPU("1").On("other").Deleted(builder.Epoch()).Obj(),
			},
			want: []nodeShape{{ID: "other", Phase: "Usable", Capacity: "cpu=4 pods=110", Allocatable: "cpu=4 pods=110", Used: "cpu=2 pods=2", Pods: []string{"1×a ends", "2×a"}}},
		},
		"a cordoned node takes nothing more": {
			objects: []runtime.Object{builder.Node("other").CPU("4").Cordoned().Obj()},
			want:    []nodeShape{{ID: "other", Phase: "Leaving", Taints: []string{corev1.TaintNodeUnschedulable}, Capacity: "cpu=4 pods=110", Allocatable: "cpu=4 pods=110"}},
		},
		"planned: the least its types have, charged with the most": {
			objects: []runtime.Object{builder.NodeClaim("c1").Pool("p").Taint("team", "", noSchedule).StartupTaint("cni", "", noSchedule).
				Require(builder.In(corev1.LabelArchStable, "amd64")).Request("cpu", "1").Obj()},
			want: []nodeShape{{
				ID: "c1", Pool: "p", Phase: "Planned", Taints: []string{"team"}, Capacity: "cpu=4 memory=16Gi pods=58", Allocatable: "cpu=2 memory=8Gi pods=29",
				Open: "karpenter.k8s.aws/instance-size In [large xlarge], karpenter.sh/capacity-type In [on-demand spot], " +
					"node.kubernetes.io/instance-type In [m5.large m5.xlarge], topology.kubernetes.io/zone In [a b]",
			}},
		},
		"planned: only types that hold its pods": {
			objects: []runtime.Object{builder.NodeClaim("c1").Pool("p").Request("cpu", "3").Require(builder.In(zoneLabel, "b", "c")).Obj()},
			want:    []nodeShape{{ID: "c1", Pool: "p", Phase: "Planned", Where: "m5.xlarge b on-demand 0.20", Capacity: "cpu=4 memory=16Gi pods=58", Allocatable: "cpu=4 memory=16Gi pods=58"}},
		},
		"planned of a class nobody knows: its own requests": {
			objects: []runtime.Object{builder.NodeClaim("c1").Pool("p").Class("other").Request("cpu", "3").Obj()},
			want:    []nodeShape{{ID: "c1", Pool: "p", Phase: "Planned", Capacity: "cpu=3"}},
		},
		"planned: daemonset pods that need a label the types have in common": {
			objects: []runtime.Object{daemon("cni", "100m").Obj(), builder.NodeClaim("c1").Pool("p").Require(builder.In(corev1.LabelInstanceTypeStable, "m5.large")).Obj()},
			want: []nodeShape{{
				ID: "c1", Pool: "p", Phase: "Planned", Where: "m5.large   0.00", Capacity: "cpu=2 memory=8Gi pods=29", Allocatable: "cpu=2 memory=8Gi pods=29", Used: "cpu=100m pods=1",
				Open: "karpenter.sh/capacity-type In [on-demand spot], topology.kubernetes.io/zone In [a b]",
			}},
		},
		"launched: what the claim promises, daemonset pods to come, reserved pods": {
			objects: []runtime.Object{daemon("cni", "100m").Obj(), launched().Obj()},
			pending: view.Pending{Reserved: map[string][]*corev1.Pod{"c1": {builder.Pod("a").UID("a").Label("app", "a").CPU("1").Obj()}}},
			want: []nodeShape{{
				ID: "c1", Pool: "p", Phase: "Launched", Where: "m5.large a spot 0.04", Capacity: "cpu=2 memory=8Gi pods=29", Allocatable: "cpu=2 memory=8Gi pods=29",
				Used: "cpu=1100m pods=2", Pods: []string{"1×a"},
			}},
		},
		"booting: zeros are filled in, its taints do not matter, each daemonset pod counts once": {
			objects: []runtime.Object{
				daemon("cni", "100m").Obj(), daemon("proxy", "50m").Obj(), launched().Taint("team", "", noSchedule).Obj(),
				builder.Node("n1").ProviderID("aws:///a/i-1").Memory("7Gi").NotReady().Obj(), daemonPod("cni", "100m").Obj(),
			},
			want: []nodeShape{{
				ID: "n1", Pool: "p", Phase: "Launched", Where: "m5.large a spot 0.04", Taints: []string{"team"},
				Capacity: "cpu=2 memory=7Gi pods=110", Allocatable: "cpu=2 memory=7Gi pods=110", Used: "cpu=150m pods=2", Pods: []string{"1×cni"},
			}},
		},
		"usable: the node speaks for itself": {
			objects: []runtime.Object{
				daemon("cni", "100m").Obj(), launched().Taint("team", "", noSchedule).Label("old", "label").Obj(),
				joined().CPU("1900m").InstanceType("m5.large").Zone("a").CapacityType("spot").Taint("other", "", noSchedule).Label(karpv1.NodeInitializedLabelKey, "true").Obj(),
			},
			want: []nodeShape{{
				ID: "n1", Pool: "p", Phase: "Usable", Where: "m5.large a spot 0.04", Taints: []string{"other"},
				Capacity: "cpu=1900m memory=8Gi pods=110", Allocatable: "cpu=1900m memory=8Gi pods=110",
			}},
		},
		"a reserved pod counts once: where it is bound": {
			objects: []runtime.Object{
				launched().Obj(), joined().NotReady().Obj(), builder.Node("n2").CPU("4").Obj(),
				builder.Pod("a").UID("a").Label("app", "a").CPU("1").On("n1").Obj(), builder.Pod("b").UID("b").Label("app", "b").CPU("1").On("n2").Obj(),
			},
			pending: view.Pending{Reserved: map[string][]*corev1.Pod{"c1": {builder.Pod("a").UID("a").CPU("1").Obj(), builder.Pod("b").UID("b").CPU("1").Obj()}}},
			want: []nodeShape{
				{ID: "n1", Pool: "p", Phase: "Launched", Where: "m5.large a spot 0.04", Capacity: "cpu=2 memory=8Gi pods=110", Allocatable: "cpu=2 memory=8Gi pods=110", Used: "cpu=1 pods=1", Pods: []string{"1×a"}},
				{ID: "n2", Phase: "Usable", Capacity: "cpu=4 pods=110", Allocatable: "cpu=4 pods=110", Used: "cpu=1 pods=1", Pods: []string{"1×b"}},
			},
		},
		"a claim the cache does not show yet": {
			pending: view.Pending{Claims: []*karpv1.NodeClaim{builder.NodeClaim("c1").UID("u").Pool("p").Require(builder.In(corev1.LabelInstanceTypeStable, "m6g.large")).Obj()}},
			want:    []nodeShape{{ID: "c1", Pool: "p", Phase: "Planned", Where: "m6g.large a on-demand 0.08", Capacity: "cpu=2 memory=7Gi pods=29", Allocatable: "cpu=2 memory=7Gi pods=29"}},
		},
		"leaving: its pods still count": {
			objects: []runtime.Object{launched().Deleted(builder.Epoch().Add(time.Hour)).Obj(), joined().Obj(), builder.Pod("a").UID("a").Label("app", "a").CPU("1").On("n1").Obj()},
			want: []nodeShape{{
				ID: "n1", Pool: "p", Phase: "Leaving", Capacity: "cpu=2 memory=8Gi pods=110", Allocatable: "cpu=2 memory=8Gi pods=110", Used: "cpu=1 pods=1", Pods: []string{"1×a"},
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []nodeShape
			for _, n := range build(t, tc.pending, tc.objects...).Nodes {
				got = append(got, nodeShapeOf(n))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPlannedLabels checks that a claim without an instance says of every label whether it is decided, so that a pod that
// selects what all candidate types have may count on it and one that selects more may not.
func TestPlannedLabels(t *testing.T) {
	n := build(t, view.Pending{}, builder.NodeClaim("c1").Pool("p").Require(builder.In(corev1.LabelInstanceTypeStable, "m5.large", "m6g.large")).Obj()).Nodes[0]
	type label struct{ Label, Open string }
	want := map[string]label{
		corev1.LabelOSStable:           {Label: "linux"},
		corev1.LabelArchStable:         {Open: "kubernetes.io/arch In [amd64 arm64]"},
		zoneLabel:                      {Open: "topology.kubernetes.io/zone In [a b]"},
		karpv1.NodePoolLabelKey:        {Label: "p"},
		corev1.LabelInstanceTypeStable: {Open: "node.kubernetes.io/instance-type In [m5.large m6g.large]"},
	}
	got := map[string]label{}
	for key := range want {
		l := label{Label: n.Labels[key]}
		if q, ok := n.Requirements[key]; ok {
			l.Open = q.String()
		}
		got[key] = l
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("labels and requirements (-want +got):\n%s", diff)
	}
}
