// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/slipway-sh/slipway/provisioner/hypothesis"
)

// verdict is a rejection as a test states it.
type verdict struct{ Pod, Node, Plugin string }

func verdicts(rejections []hypothesis.Refusal) []verdict {
	var got []verdict
	for _, r := range rejections {
		got = append(got, verdict{r.Pod.Name, r.Node, r.Plugin})
	}
	return got
}

func TestVerify(t *testing.T) {
	withPort := func(name string) *corev1.Pod { return pod(name, "web").HostPort(80).Obj() }
	for _, tc := range []struct {
		name       string
		cluster    []runtime.Object
		candidates []planned
		want       []verdict
	}{
		{
			name:       "resources count up",
			candidates: []planned{{Node: node("n1", "a", "2"), Pods: several(3, "p", plain("web"))}},
			want:       []verdict{{"p-2", "n1", names.NodeResourcesFit}},
		},
		{
			name:       "daemonset pods take their share",
			candidates: []planned{{Node: node("n1", "a", "2"), Present: several(1, "ds", plain("ds")), Pods: several(2, "p", plain("web"))}},
			want:       []verdict{{"p-1", "n1", names.NodeResourcesFit}},
		},
		{
			name:       "taint without toleration",
			candidates: []planned{{Node: tainted(node("n1", "a", "4"), "gpu"), Pods: []*corev1.Pod{pod("p", "web").Obj(), pod("q", "web").Toleration("gpu").Obj()}}},
			want:       []verdict{{"p", "n1", names.TaintToleration}},
		},
		{
			name: "node selector",
			candidates: []planned{{Node: node("n1", "a", "4"), Pods: []*corev1.Pod{
				pod("p", "web").NodeSelector(map[string]string{zoneKey: "b"}).Obj(), pod("q", "web").NodeSelector(map[string]string{zoneKey: "a"}).Obj(),
			}}},
			want: []verdict{{"p", "n1", names.NodeAffinity}},
		},
		{
			name:       "restricted to another node by name",
			candidates: []planned{{Node: node("n1", "a", "4"), Pods: []*corev1.Pod{pod("p", "web").NodeAffinityIn("metadata.name", []string{"n2"}, 1).Obj()}}},
			want:       []verdict{{"p", "n1", ""}},
		},
		{
			name:       "host ports of two planned pods",
			candidates: []planned{{Node: node("n1", "a", "4"), Pods: several(2, "p", withPort)}, {Node: node("n2", "a", "4"), Pods: several(1, "q", withPort)}},
			want:       []verdict{{"p-1", "n1", names.NodePorts}},
		},
		{
			name: "zone spread over new nodes",
			candidates: []planned{
				{Node: node("n1", "a", "8"), Pods: several(2, "p", spreadBy(zoneKey, "web", 1))},
				{Node: node("n2", "b", "8"), Pods: several(4, "q", spreadBy(zoneKey, "web", 1))},
			},
			want: []verdict{{"q-3", "n2", names.PodTopologySpread}},
		},
		{
			name:    "zone spread counts the cluster",
			cluster: []runtime.Object{node("old", "b", "8"), on(pod("x", "web").Obj(), "old")},
			candidates: []planned{
				{Node: node("n1", "a", "8"), Pods: several(3, "p", spreadBy(zoneKey, "web", 1))},
			},
			want: []verdict{{"p-2", "n1", names.PodTopologySpread}},
		},
		{
			name: "spread over three domains, the third left empty",
			candidates: []planned{
				{Node: node("n1", "a", "8"), Pods: several(1, "p", spreadBy(zoneKey, "web", 1))},
				{Node: node("n2", "b", "8"), Pods: several(1, "q", spreadBy(zoneKey, "web", 1))},
				{Node: node("n3", "c", "8")},
				{Node: node("n4", "a", "8"), Pods: several(1, "r", spreadBy(zoneKey, "web", 1))},
			},
			want: []verdict{{"r-0", "n4", names.PodTopologySpread}},
		},
		{
			name:       "anti-affinity between equal planned pods",
			candidates: []planned{{Node: node("n1", "a", "8"), Pods: several(2, "p", apart(corev1.LabelHostname, "db", "db"))}},
			want:       []verdict{{"p-1", "n1", names.InterPodAffinity}},
		},
		{
			name: "a planned pod's anti-affinity keeps out a pod without terms",
			candidates: []planned{{Node: node("n1", "a", "8"), Pods: []*corev1.Pod{
				plain("web")("w0"), apart(corev1.LabelHostname, "db", "batch")("d"), plain("batch")("b"), plain("web")("w1"),
			}}},
			want: []verdict{{"b", "n1", names.InterPodAffinity}},
		},
		{
			name: "the same across a zone",
			candidates: []planned{
				{Node: node("n1", "a", "8"), Pods: []*corev1.Pod{plain("batch")("b0"), apart(zoneKey, "db", "web")("d")}},
				{Node: node("n2", "a", "8"), Pods: []*corev1.Pod{plain("web")("w"), plain("batch")("b1")}},
			},
			want: []verdict{{"w", "n2", names.InterPodAffinity}},
		},
		{
			name: "affinity to a planned pod",
			candidates: []planned{
				{Node: node("n1", "a", "8"), Pods: []*corev1.Pod{together(zoneKey, "web", "db")("early"), plain("db")("d"), together(zoneKey, "web", "db")("late")}},
				{Node: node("n2", "b", "8"), Pods: []*corev1.Pod{together(zoneKey, "web", "db")("elsewhere")}},
			},
			want: []verdict{{"elsewhere", "n2", names.InterPodAffinity}},
		},
		{
			name: "a spread planned zone by zone",
			candidates: []planned{
				{Node: node("n1", "a", "8"), Pods: several(3, "p", spreadBy(zoneKey, "web", 1))},
				{Node: node("n2", "b", "8"), Pods: several(3, "q", spreadBy(zoneKey, "web", 1))},
				{Node: node("n3", "c", "8"), Pods: several(4, "r", spreadBy(zoneKey, "web", 1))},
			},
		},
		{
			name: "a spread by an empty selector counts no pod",
			candidates: []planned{
				{Node: node("n1", "a", "8"), Pods: several(3, "p", func(name string) *corev1.Pod {
					return pod(name, "web").SpreadConstraint(1, zoneKey, corev1.DoNotSchedule, st.MakeLabelSelector().Obj(), nil, nil, nil, nil).Obj()
				})},
				{Node: node("n2", "b", "8")},
			},
		},
		{
			name:       "existing node with what is left of it",
			cluster:    []runtime.Object{node("old", "a", "2"), on(pod("x", "web").Obj(), "old")},
			candidates: []planned{{Node: node("old", "", "0"), Existing: true, Present: []*corev1.Pod{pod("x", "web").Obj()}, Pods: several(2, "p", plain("web"))}},
			want:       []verdict{{"p-1", "old", names.NodeResourcesFit}},
		},
		{
			name:       "a template whose node has joined",
			cluster:    []runtime.Object{node("n1", "a", "1")},
			candidates: []planned{{Node: node("n1", "a", "8"), Pods: several(2, "p", plain("web"))}},
			want:       []verdict{{"p-1", "n1", names.NodeResourcesFit}},
		},
		{
			name:       "one node in two candidates",
			candidates: []planned{{Node: node("n1", "a", "2"), Pods: several(1, "p", plain("web"))}, {Node: node("n1", "a", "2"), Pods: several(2, "q", plain("web"))}},
			want:       []verdict{{"q-1", "n1", names.NodeResourcesFit}},
		},
		{
			name:       "existing node that is gone",
			candidates: []planned{{Node: node("old", "a", "8"), Existing: true, Pods: several(1, "p", plain("web"))}},
			want:       []verdict{{"p-0", "old", ""}},
		},
		{
			name:       "missing claim",
			candidates: []planned{{Node: node("n1", "a", "8"), Pods: []*corev1.Pod{pod("p", "web").PVC("data").Obj()}}},
			want:       []verdict{{"p", "n1", names.VolumeRestrictions}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, nil, nil, tc.cluster...)
			if diff := cmp.Diff(tc.want, verdicts(b.verify(t, tc.candidates))); diff != "" {
				t.Errorf("rejections (-want +got):\n%s", diff)
			}
			// A verification leaves nothing behind.
			if diff := cmp.Diff(tc.want, verdicts(b.verify(t, tc.candidates))); diff != "" {
				t.Errorf("rejections the second time (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVerifySaysWhy(t *testing.T) {
	b := newBench(t, nil, nil)
	got := b.verify(t, []planned{{Node: node("n1", "a", "1"), Pods: several(2, "p", plain("web"))}})
	if len(got) != 1 || got[0].Reason != "Insufficient cpu" {
		t.Errorf("rejections = %+v, want one with the plugin's reason %q", got, "Insufficient cpu")
	}
}

func TestVerifyFollowsTheCluster(t *testing.T) {
	b := newBench(t, nil, nil, node("old", "a", "2"))
	plan := []planned{{Node: node("old", "", "0"), Existing: true, Pods: several(2, "p", plain("web"))}}
	if got := b.verify(t, plan); len(got) != 0 {
		t.Fatalf("rejections on an empty node: %v", verdicts(got))
	}
	if _, err := b.client.CoreV1().Pods("default").Create(t.Context(), on(plain("web")("x"), "old"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the pod takes its room", func() bool { return len(b.verify(t, plan)) == 1 })
	if err := b.client.CoreV1().Pods("default").Delete(t.Context(), "x", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the pod's room is free", func() bool { return len(b.verify(t, plan)) == 0 })
	if err := b.client.CoreV1().Nodes().Delete(t.Context(), "old", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the node is gone", func() bool { return len(b.verify(t, plan)) == 2 })
}

// refuser is an out-of-tree plugin with a memory of its own: it wants to see
// every pod in PreFilter, and takes two.
type refuser struct{ seen map[string]bool }

func (r *refuser) Name() string { return "Refuser" }

func (r *refuser) PreFilter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	r.seen[pod.Name] = true
	return nil, nil
}

func (r *refuser) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func (r *refuser) Filter(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) *fwk.Status {
	if len(r.seen) > 2 {
		return fwk.NewStatus(fwk.Unschedulable, "two are enough")
	}
	return nil
}

// TestPodsAreJudgedByTheirProfile has a second profile that keeps its pods in zone a.
func TestPodsAreJudgedByTheirProfile(t *testing.T) {
	first, second := stockProfile(t), stockProfile(t)
	second.SchedulerName = "zonal"
	for i, c := range second.PluginConfig {
		if args, ok := c.Args.(*schedulerapi.NodeAffinityArgs); ok {
			args = args.DeepCopy()
			args.AddedAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}},
			}}}}
			second.PluginConfig[i].Args = args
		}
	}
	b := newBenchOf(t, nil, []schedulerapi.KubeSchedulerProfile{first, second})
	of := func(scheduler string) []*corev1.Pod {
		pods := several(1, scheduler, plain("web"))
		pods[0].Spec.SchedulerName = scheduler
		return pods
	}
	got := b.verify(t, []planned{
		{Node: node("a1", "a", "8"), Pods: slices.Concat(of(first.SchedulerName), of("zonal"))},
		{Node: node("b1", "b", "8"), Pods: slices.Concat(of(first.SchedulerName), of("zonal"), of("somebody-elses"))},
	})
	want := []verdict{{"zonal-0", "b1", names.NodeAffinity}}
	if diff := cmp.Diff(want, verdicts(got)); diff != "" {
		t.Errorf("rejections (-want +got):\n%s", diff)
	}
}

func TestOutOfTreePluginIsAsked(t *testing.T) {
	registry := frameworkruntime.Registry{"Refuser": func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
		return &refuser{seen: map[string]bool{}}, nil
	}}
	b := newBench(t, registry, []string{"Refuser"})
	got := b.verify(t, []planned{{Node: node("n1", "a", "8"), Pods: several(3, "p", plain("web"))}})
	want := []verdict{{"p-2", "n1", "Refuser"}}
	if diff := cmp.Diff(want, verdicts(got)); diff != "" {
		t.Errorf("rejections (-want +got):\n%s", diff)
	}
}

func TestVerifyNeedsTheCluster(t *testing.T) {
	b := newBench(t, nil, nil)
	late := &Judge{cluster: &cluster{synced: []cache.InformerSynced{func() bool { return false }}}}
	if _, err := late.Verify(t.Context(), nil, nil); !errors.Is(err, ErrNotSynced) {
		t.Errorf("Verify() error = %v, want %v", err, ErrNotSynced)
	}
	if _, err := b.judge.Verify(t.Context(), []hypothesis.Node{{}}, nil); err == nil {
		t.Error("Verify() of a candidate without a node gave no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.judge.verifyPlan(ctx, []planned{{Node: node("n1", "a", "1"), Pods: several(1, "p", plain("web"))}}); !errors.Is(err, context.Canceled) {
		t.Errorf("Verify() with an ended context: error = %v, want %v", err, context.Canceled)
	}
}

// TestAgreesWithScratch compares random plans with the same plugins run from
// scratch for each pod: whatever Verify shares or carries on must not show.
func TestAgreesWithScratch(t *testing.T) {
	kinds := []func(string) *corev1.Pod{
		plain("web"), plain("batch"), spreadBy(zoneKey, "web", 1), spreadBy(zoneKey, "db", 2), spreadBy(corev1.LabelHostname, "web", 1),
		func(name string) *corev1.Pod {
			return pod(name, "web").SpreadConstraint(1, zoneKey, corev1.DoNotSchedule, st.MakeLabelSelector().Obj(), nil, nil, nil, nil).Obj()
		},
		apart(corev1.LabelHostname, "db", "db"), apart(zoneKey, "db", "batch"), apart(zoneKey, "web", "db"), together(zoneKey, "web", "db"), together(corev1.LabelHostname, "batch", "web"),
		func(name string) *corev1.Pod { return pod(name, "web").HostPort(80).Obj() },
		func(name string) *corev1.Pod {
			return pod(name, "batch").NodeSelector(map[string]string{zoneKey: "a"}).Obj()
		},
	}
	zones := []string{"a", "b", "c"}
	rejected := 0
	for seed := range uint64(40) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			var objects []runtime.Object
			var nodes []*corev1.Node
			var pods []*corev1.Pod
			for i := range rnd.IntN(4) {
				n := node(fmt.Sprintf("old-%d", i), zones[rnd.IntN(3)], "6")
				nodes, objects = append(nodes, n), append(objects, n)
				for k := range rnd.IntN(3) {
					p := on(kinds[rnd.IntN(len(kinds))](fmt.Sprintf("x-%d-%d", i, k)), n.Name)
					pods, objects = append(pods, p), append(objects, p)
				}
			}
			var plan []planned
			for i := range 2 + rnd.IntN(5) {
				c := planned{Node: node(fmt.Sprintf("new-%d", i), zones[rnd.IntN(3)], "6")}
				if i < len(nodes) && rnd.IntN(2) == 0 {
					c = planned{Node: nodes[i], Existing: true}
				}
				for k := range rnd.IntN(9) {
					c.Pods = append(c.Pods, kinds[rnd.IntN(len(kinds))](fmt.Sprintf("p-%d-%d", i, k)))
				}
				plan = append(plan, c)
			}
			b := newBench(t, nil, nil, objects...)
			want := b.reference(t, nodes, pods, plan)
			rejected += len(want)
			if diff := cmp.Diff(want, b.verify(t, plan), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("rejections (-from scratch +got):\n%s", diff)
			}
		})
	}
	if rejected == 0 {
		t.Error("no pod was rejected in any plan: the comparison proves nothing")
	}
}
