// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
)

// fakeGroups parks groups and notes them.
type fakeGroups struct {
	mu     sync.Mutex
	least  int
	domain string
	on     []string // the nodes of scheduled members
	pods   []string
}

func (g *fakeGroups) OfferGroup(_ types.NamespacedName, least int, domain string, scheduled, pods []*corev1.Pod) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.least, g.domain, g.on, g.pods = least, domain, nil, nil
	for _, p := range scheduled {
		g.on = append(g.on, p.Spec.NodeName)
	}
	slices.Sort(g.on)
	for _, p := range pods {
		g.pods = append(g.pods, p.Name)
	}
	slices.Sort(g.pods)
	return true
}

func (g *fakeGroups) offered() (int, []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.least, g.pods
}

// scheduled are the nodes of scheduled members when the pod was last offered, nil if it was not.
func (g *fakeGroups) scheduled(pod string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.pods, pod) {
		return nil
	}
	return g.on
}

func trainers(gang int32) *schedulingv1beta1.PodGroup {
	return &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: "train", Namespace: "ns", UID: "train"},
		Spec:       schedulingv1beta1.PodGroupSpec{SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: gang}}},
	}
}

// TestPodGroup is a group's way in a real scheduler: its members fail together, are offered together, sleep, and are bound
// together when they are released.
func TestPodGroup(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.GenericWorkload, true)
	groups := &fakeGroups{}
	h := startHostOf(t, Core{Sink: &fakeSink{}, Groups: groups}, trainers(2), node("small", "1"))
	for _, name := range []string{"a", "b"} {
		p := podWith(name, "3")
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("train")}
		h.create(p)
	}
	h.eventually("the group is offered", func() bool { _, pods := groups.offered(); return len(pods) > 0 })
	least, pods := groups.offered()
	if diff := cmp.Diff([]string{"a", "b"}, pods); diff != "" || least != 2 {
		t.Errorf("offered at least %d of (-want +got):\n%s", least, diff)
	}
	h.eventually("both are parked", func() bool { return h.gate.Closed() == 2 })
	h.addNode(node("n1", "4"))
	h.addNode(node("n2", "4"))
	h.gate.Release("uid-a", "uid-b")
	h.eventually("both are bound", func() bool { return h.pod("a").Spec.NodeName != "" && h.pod("b").Spec.NodeName != "" })

	if err := h.client.CoreV1().Pods("ns").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	again := podWith("a-again", "5")
	again.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("train")}
	h.create(again)
	h.eventually("a replacement is offered, with who is there", func() bool {
		return slices.Equal(groups.scheduled("a-again"), []string{h.pod("b").Spec.NodeName})
	})
}

// TestPodGroupWithoutNodes is a group's way in a cluster that has no nodes at all.
func TestPodGroupWithoutNodes(t *testing.T) {
	for name, tc := range map[string]struct {
		group func(*schedulingv1beta1.PodGroup)
		gates []featuregate.Feature
		pods  []string
	}{
		"gang": {func(*schedulingv1beta1.PodGroup) {}, nil, []string{"a", "b"}},
		"basic": {func(g *schedulingv1beta1.PodGroup) {
			g.Spec.SchedulingPolicy = schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}}
		}, nil, []string{"a"}},
		"gang in one zone": {func(g *schedulingv1beta1.PodGroup) {
			g.Spec.SchedulingConstraints = &schedulingv1beta1.PodGroupSchedulingConstraints{Topology: []schedulingv1beta1.TopologyConstraint{{Key: corev1.LabelTopologyZone}}}
		}, []featuregate.Feature{features.TopologyAwareWorkloadScheduling}, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, gate := range append([]featuregate.Feature{features.GenericWorkload}, tc.gates...) {
				featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, gate, true)
			}
			groups, group := &fakeGroups{}, trainers(2)
			tc.group(group)
			h := startHostOf(t, Core{Sink: &fakeSink{}, Groups: groups}, group)
			for _, name := range tc.pods {
				p := podWith(name, "3")
				p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("train")}
				h.create(p)
			}
			h.eventually("all are offered together", func() bool { _, pods := groups.offered(); return slices.Equal(pods, tc.pods) })
			h.eventually("all are parked", func() bool { return h.gate.Closed() == len(tc.pods) })
			for _, name := range []string{"n1", "n2"} {
				n := node(name, "4")
				n.Labels[corev1.LabelTopologyZone] = "z"
				h.addNode(n)
			}
			h.gate.Release("uid-a", "uid-b")
			for _, name := range tc.pods {
				h.eventually(name+" is bound", func() bool { return h.pod(name).Spec.NodeName != "" })
			}
		})
	}
}

// TestTopologyOfPodGroups checks what is asked for, and what is refused with a reason.
func TestTopologyOfPodGroups(t *testing.T) {
	in := func(keys ...string) *schedulingv1beta1.PodGroup {
		g := trainers(2)
		g.Spec.SchedulingConstraints = &schedulingv1beta1.PodGroupSchedulingConstraints{}
		for _, key := range keys {
			g.Spec.SchedulingConstraints.Topology = append(g.Spec.SchedulingConstraints.Topology, schedulingv1beta1.TopologyConstraint{Key: key})
		}
		return g
	}
	for name, tc := range map[string]struct {
		group  *schedulingv1beta1.PodGroup
		ok     bool
		domain string
	}{
		"gang":                    {trainers(2), true, ""},
		"composite":               {nil, false, ""},
		"no constraint":           {in(), true, ""},
		"all in one zone":         {in(corev1.LabelTopologyZone), true, corev1.LabelTopologyZone},
		"all on one node":         {in(corev1.LabelHostname), false, ""},
		"zone and rack at a time": {in(corev1.LabelTopologyZone, "example.com/rack"), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := unsupported(tc.group); (got == "") != tc.ok {
				t.Errorf("unsupported() = %q, want a reason: %v", got, !tc.ok)
			}
			if tc.ok && domain(tc.group) != tc.domain {
				t.Errorf("domain() = %q, want %q", domain(tc.group), tc.domain)
			}
		})
	}
}
