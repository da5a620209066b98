// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/slipway-sh/slipway/provisioner/hypothesis"
)

// bench is a judge over a cluster of the given objects, and the live profile it
// was built from.
type bench struct {
	judge  *Judge
	client *fake.Clientset
	// scratch has the judge's plugins, over whatever snapshot it is given.
	scratch framework.Framework
	lister  *swappable
}

// swappable is a lister whose content is exchanged as a whole.
type swappable struct{ fwk.SharedLister }

// newBench builds the judge as a scheduler process does: from the live profile,
// before the informers start.
func newBench(t testing.TB, registry frameworkruntime.Registry, plugins []string, objects ...runtime.Object) *bench {
	t.Helper()
	live := stockProfile(t)
	for _, name := range plugins {
		live.Plugins.MultiPoint.Enabled = append(live.Plugins.MultiPoint.Enabled, schedulerapi.Plugin{Name: name})
	}
	return newBenchOf(t, registry, []schedulerapi.KubeSchedulerProfile{live}, objects...)
}

func stockProfile(t testing.TB) schedulerapi.KubeSchedulerProfile {
	t.Helper()
	cfg, err := latest.Default()
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Profiles[0]
}

// newBenchOf is newBench with several profiles.
func newBenchOf(t testing.TB, registry frameworkruntime.Registry, profiles []schedulerapi.KubeSchedulerProfile, objects ...runtime.Object) *bench {
	t.Helper()
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	client := fake.NewClientset(objects...)
	factory := scheduler.NewInformerFactory(client, 0, nil)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	sched, err := scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithProfiles(profiles...), scheduler.WithFrameworkOutOfTreeRegistry(registry))
	if err != nil {
		t.Fatal(err)
	}
	var all []Options
	for _, p := range profiles {
		all = append(all, Options{Profile: p, Live: sched.Profiles[p.SchedulerName], Registry: registry})
	}
	options := all[0]
	judge, err := New(ctx, options, all[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{judge: judge, client: client, lister: &swappable{internalcache.NewEmptySnapshot()}}
	options.Profile.SchedulerName = "scratch"
	if b.scratch, err = newFramework(ctx, options, b.lister, options.Live.SharedCSIManager()); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for !judge.HasSynced() {
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
	}
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	return b
}

// planned is a node with the pods a plan puts on it, in order.
type planned struct {
	Node *corev1.Node
	// Existing says the node is one of the cluster.
	Existing bool
	Present  []*corev1.Pod
	Limits   map[string]int32
	Pods     []*corev1.Pod
}

// verifyPlan verifies node by node.
func (j *Judge) verifyPlan(ctx context.Context, nodes []planned) ([]hypothesis.Refusal, error) {
	var candidates []hypothesis.Node
	var trials []hypothesis.Trial
	for _, n := range nodes {
		if !n.Existing {
			candidates = append(candidates, hypothesis.Node{Node: n.Node, Present: n.Present, AttachLimits: n.Limits})
		}
		for _, p := range n.Pods {
			trials = append(trials, hypothesis.Trial{Pod: p, Node: n.Node.Name})
		}
	}
	return j.Verify(ctx, candidates, trials)
}

func (b *bench) verify(t testing.TB, candidates []planned) []hypothesis.Refusal {
	t.Helper()
	rejections, err := b.judge.verifyPlan(t.Context(), candidates)
	if err != nil {
		t.Fatal(err)
	}
	return rejections
}

// reference does what Verify does without anything clever: for each pod, each
// time, a snapshot built from scratch and a fresh PreFilter.
func (b *bench) reference(t testing.TB, nodes []*corev1.Node, pods []*corev1.Pod, candidates []planned) []hypothesis.Refusal {
	t.Helper()
	ctx := klog.NewContext(t.Context(), logr.Discard())
	all := append([]*corev1.Node(nil), nodes...)
	for _, c := range candidates {
		if !c.Existing {
			all = append(all, b.judge.withFeatures(c.Node))
		}
		for _, pod := range c.Present {
			pods = append(pods, on(pod, c.Node.Name))
		}
	}
	type pending struct {
		planned
		pod *corev1.Pod
	}
	var waiting []pending
	for _, c := range candidates {
		for _, pod := range c.Pods {
			waiting = append(waiting, pending{c, pod})
		}
	}
	for {
		var rejections []hypothesis.Refusal
		var again []pending
		for _, w := range waiting {
			c, pod := w.planned, w.pod
			snapshot := internalcache.NewSnapshot(pods, all)
			b.lister.SharedLister = snapshot
			state := framework.NewCycleState()
			result, status, _ := b.scratch.RunPreFilterPlugins(ctx, state, pod)
			if status.IsSuccess() && (result.AllNodes() || result.NodeNames.Has(c.Node.Name)) {
				node, err := snapshot.Get(c.Node.Name)
				if err != nil {
					t.Fatal(err)
				}
				status = b.scratch.RunFilterPlugins(ctx, state, pod, node)
			}
			if !status.IsSuccess() {
				rejections = append(rejections, hypothesis.Refusal{Trial: hypothesis.Trial{Pod: pod, Node: c.Node.Name}, Plugin: status.Plugin(), Reason: status.Message()})
				again = append(again, w)
				continue
			}
			pods = append(pods, on(pod, c.Node.Name))
		}
		if len(again) == len(waiting) || len(again) == 0 {
			return rejections
		}
		waiting = again
	}
}

func on(pod *corev1.Pod, node string) *corev1.Pod {
	bound := pod.DeepCopy()
	bound.Spec.NodeName = node
	return bound
}

const zoneKey = corev1.LabelTopologyZone

func node(name, zone, cpu string) *corev1.Node {
	return st.MakeNode().Name(name).Label(corev1.LabelHostname, name).Label(zoneKey, zone).
		Capacity(map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: "64Gi", corev1.ResourcePods: "110"}).Obj()
}

func tainted(n *corev1.Node, key string) *corev1.Node {
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	return n
}

// pod returns a pod of the app with one CPU and what a service account adds.
func pod(name, app string) *st.PodWrapper {
	w := st.MakePod().Name(name).Namespace("default").UID("uid-"+name).Label("app", app).
		SchedulerName(corev1.DefaultSchedulerName).Req(map[corev1.ResourceName]string{corev1.ResourceCPU: "1"})
	w.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-" + name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}}
	w.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "kube-api-access-" + name, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}
	return w
}

// several returns n pods made by f, called name-0, name-1 ….
func several(n int, name string, f func(name string) *corev1.Pod) []*corev1.Pod {
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = f(fmt.Sprintf("%s-%d", name, i))
		pods[i].UID = types.UID("uid-" + pods[i].Name)
	}
	return pods
}

func spreadBy(key, app string, maxSkew int32) func(string) *corev1.Pod {
	return func(name string) *corev1.Pod {
		return pod(name, app).SpreadConstraint(int(maxSkew), key, corev1.DoNotSchedule,
			st.MakeLabelSelector().Label("app", app).Obj(), nil, nil, nil, nil).Obj()
	}
}

func apart(key, app, from string) func(string) *corev1.Pod {
	return func(name string) *corev1.Pod {
		return pod(name, app).PodAntiAffinity(key, st.MakeLabelSelector().Label("app", from).Obj(), st.PodAntiAffinityWithRequiredReq).Obj()
	}
}

func together(key, app, with string) func(string) *corev1.Pod {
	return func(name string) *corev1.Pod {
		return pod(name, app).PodAffinity(key, st.MakeLabelSelector().Label("app", with).Obj(), st.PodAffinityWithRequiredReq).Obj()
	}
}

func plain(app string) func(string) *corev1.Pod {
	return func(name string) *corev1.Pod { return pod(name, app).Obj() }
}
