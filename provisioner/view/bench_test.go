// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
)

// The cluster that views are measured on.
const (
	benchNodes     = 5000
	benchPods      = 50000 // five of each node's ten are daemonset pods
	benchWorkloads = 500
)

// largeCluster has all of its nodes bought and usable, and its pods bound.
func largeCluster(b *testing.B) *world {
	w := newWorld(b, builder.NodePool("p").Obj(), builder.EC2NodeClass(builder.DefaultClass).Ready().Obj())
	for d := range 5 {
		name := fmt.Sprintf("ds%d", d)
		w.cluster.Put(builder.DaemonSet(name).UID(name).Template(builder.Pod(name).CPU("50m")).Obj())
	}
	for i := range benchNodes {
		id, node := fmt.Sprintf("aws:///a/i-%d", i), fmt.Sprintf("node-%d", i)
		w.put(builder.NodeClaim(fmt.Sprintf("claim-%d", i)).UID(fmt.Sprintf("claim-%d", i)).Pool("p").
			Launched(id, "m5.large", "a", "spot").Resource("cpu", "2").Resource("memory", "8Gi").Obj())
		w.put(builder.Node(node).ProviderID(id).CPU("2").Memory("8Gi").Pool("p").Zone("a").InstanceType("m5.large").CapacityType("spot").
			Label(karpv1.NodeRegisteredLabelKey, "true").Obj())
		for d := range 5 {
			name := fmt.Sprintf("ds%d", d)
			p := builder.Pod(fmt.Sprintf("%s-%d", name, i)).UID(fmt.Sprintf("%s-%d", name, i)).Label("app", name).CPU("50m").On(node).
				OwnedBy(metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}, name, name).Obj()
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{builder.In(metav1.ObjectNameField, node)}}},
			}}}
			w.put(p)
		}
	}
	for i := range benchPods - 5*benchNodes {
		w.put(benchPod(i).On(fmt.Sprintf("node-%d", i%benchNodes)).Obj())
	}
	return w
}

// benchPod is pod i of a workload that spreads.
func benchPod(i int) *builder.PodBuilder {
	app := map[string]string{"app": fmt.Sprintf("app%d", i%benchWorkloads)}
	return builder.Pod(fmt.Sprintf("pod-%d", i)).UID(fmt.Sprintf("pod-%d", i)).Labels(app).CPU("100m").Memory("128Mi").ZoneSpread(1, app)
}

// BenchmarkView measures making a view: the first one of a process, and those after a change.
func BenchmarkView(b *testing.B) {
	w := largeCluster(b)
	build := func(v *view.Builder) {
		if _, err := v.Build(b.Context(), view.Pending{}); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			build(view.New(w.source()))
		}
		figure(b, "view-first-5000", time.Millisecond)
	})
	v := view.New(w.source())
	w.check(v.Follow(w.informers()))
	for _, kind := range []string{"*v1.NodeClaim", "*v1.Node", "*v1.Pod"} {
		for _, o := range w.objects[kind] {
			for _, h := range w.feeds[kind].handlers {
				h.OnAdd(o, true)
			}
		}
	}
	build(v)
	b.Run("unchanged", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			build(v)
		}
		figure(b, "view-unchanged-5000", time.Microsecond)
	})
	i := benchPods
	b.Run("pod", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			i++
			p := benchPod(i).On(fmt.Sprintf("node-%d", i%benchNodes)).Obj()
			for _, h := range w.feeds["*v1.Pod"].handlers {
				h.OnAdd(p, false)
			}
			build(v)
		}
		figure(b, "view-pod-5000", time.Microsecond)
	})
	b.Run("node", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n := w.objects["*v1.Node"]["/node-17"]
			for _, h := range w.feeds["*v1.Node"].handlers {
				h.OnUpdate(n, n)
			}
			build(v)
		}
		figure(b, "view-node-5000", time.Microsecond)
	})
}

// BenchmarkEvent measures taking note of the events of running pods: one whose readiness turns, which is nearly all of them.
func BenchmarkEvent(b *testing.B) {
	w := newWorld(b)
	v := view.New(w.source())
	w.check(v.Follow(w.informers()))
	was := benchPod(1).On("n").Phase(corev1.PodRunning).Obj()
	was.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: was.Spec.Containers[0].Name, AllocatedResources: was.Spec.Containers[0].Resources.Requests}}
	now := was.DeepCopy()
	now.Status.Conditions = append(now.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	w.put(was)
	b.ReportAllocs()
	for b.Loop() {
		w.feeds["*v1.Pod"].handlers[0].OnUpdate(was, now)
	}
	figure(b, "view-event", time.Nanosecond)
}

// BenchmarkPod measures converting a pod that was not seen before, of a template that was.
func BenchmarkPod(b *testing.B) {
	v := view.New(newWorld(b).source())
	p := benchPod(1).Obj()
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		fresh := *p
		fresh.UID = types.UID(strconv.Itoa(i))
		v.Pod(&fresh)
	}
	figure(b, "view-convert-pod", time.Nanosecond)
}

func figure(b *testing.B, name string, unit time.Duration) {
	units := map[time.Duration]string{time.Nanosecond: "ns", time.Microsecond: "us", time.Millisecond: "ms"}
	fmt.Printf("figure %s %.3g %s\n", name, float64(b.Elapsed())/float64(b.N)/float64(unit), units[unit])
}
