// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package fidelity

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/cluster"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

// daemonNodes differ in what daemonsets select by.
func daemonNodes() []*corev1.Node {
	node := func(name string) *builder.NodeBuilder { return builder.Node(name).CPU("8").Memory("32Gi") }
	return []*corev1.Node{
		node("plain").Obj(),
		node("gpu").Label("gpu", "t4").Label("team", "x").Obj(),
		node("arm").Label("arch", "arm64").Label("gen", "6").Obj(),
		node("tainted").Label("team", "x").Taint("team", "x", corev1.TaintEffectNoSchedule).Obj(),
		node("evicting").Taint("maintenance", "", corev1.TaintEffectNoExecute).Obj(),
		node("discouraged").Label("gen", "7").Taint("old", "", corev1.TaintEffectPreferNoSchedule).Obj(),
		node("cordoned").Label("arch", "arm64").Cordoned().Obj(),
	}
}

// daemonObjects are what the API server completes pods with.
func daemonObjects() []client.Object {
	q := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	}
	return []client.Object{
		&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "defaults", Namespace: "default"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypeContainer, Default: q("4", "4Gi"), DefaultRequest: q("50m", "64Mi")},
		}}},
		&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "most", Namespace: "kube-system"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypeContainer, Max: q("2", "2Gi"), Min: q("1m", "1Mi")}, // a maximum alone is the default, too
		}}},
		&nodev1.RuntimeClass{
			ObjectMeta: metav1.ObjectMeta{Name: "sandbox"}, Handler: "runsc", Overhead: &nodev1.Overhead{PodFixed: q("250m", "100Mi")},
			Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"team": "x"}, Tolerations: []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}},
		},
	}
}

// daemonSets are in namespaces with and without defaults.
func daemonSets() []*appsv1.DaemonSet {
	limits := func(cpu string) *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}
	}
	all := corev1.Toleration{Operator: corev1.TolerationOpExists}
	var out []*appsv1.DaemonSet
	add := func(name, namespace string, pod *builder.PodBuilder, change func(*corev1.PodSpec)) {
		ds := builder.DaemonSet(name).Namespace(namespace).Template(pod).Obj()
		ds.Spec.Template.Spec.SchedulerName = "nobody" // its pods are to stay as they were made
		if change != nil {
			change(&ds.Spec.Template.Spec)
		}
		out = append(out, ds)
	}
	for _, ns := range []string{"default", "kube-system", "bare"} {
		add("plain", ns, builder.Pod("d"), nil)
		add("asks", ns, builder.Pod("d").CPU("100m").Memory("10Mi"), nil)
		add("limited", ns, builder.Pod("d").Limit("cpu", "300m"), nil)
		add("sidecars", ns, builder.Pod("d").CPU("100m").Sidecar("proxy", "10m", "10Mi").InitContainer("init", "1500m", "20Mi"), nil)
		add("pod-limits", ns, builder.Pod("d"), func(s *corev1.PodSpec) { s.Resources = limits("5") })
		add("pod-limits-and-requests", ns, builder.Pod("d").CPU("100m").Sidecar("proxy", "10m", "10Mi"), func(s *corev1.PodSpec) { s.Resources = limits("6") })
		add("pod-requests", ns, builder.Pod("d").PodRequest("cpu", "5"), nil)
		add("sandboxed", ns, builder.Pod("d").CPU("100m"), func(s *corev1.PodSpec) { s.RuntimeClassName = new("sandbox") })
	}
	add("gpu", "bare", builder.Pod("d").NodeSelector("gpu", "t4"), nil)
	add("everywhere", "bare", builder.Pod("d").Tolerate(all), nil)
	add("terms", "bare", builder.Pod("d").Tolerate(all).NodeAffinity(builder.In("arch", "arm64")).NodeAffinity(builder.Requirement("gen", corev1.NodeSelectorOpGt, "6")), nil)
	add("not", "bare", builder.Pod("d").NodeAffinity(builder.NotIn("team", "x"), builder.Requirement("gpu", corev1.NodeSelectorOpDoesNotExist)), nil)
	add("named", "bare", builder.Pod("d"), func(s *corev1.PodSpec) { s.NodeName = "gpu" })
	add("named-and-terms", "bare", builder.Pod("d").NodeAffinity(builder.In("team", "x")), func(s *corev1.PodSpec) { s.NodeName = "gpu" })
	add("host-network", "bare", builder.Pod("d"), func(s *corev1.PodSpec) {
		s.HostNetwork = true
		s.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 9100}, {ContainerPort: 53, HostPort: 53, Protocol: corev1.ProtocolUDP}}
	})
	return out
}

// TestFidelityOfDaemonSets compares what the model expects of a DaemonSet's pods (which nodes they run on, what they ask for,
// which ports they bind) with the pods that the real controller and API server make.
func TestFidelityOfDaemonSets(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	log.SetLogger(logr.Discard())
	kube, err := client.New(cluster.Start(t, cluster.Options{}).Config(), client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}}
	objects = append(objects, daemonObjects()...)
	for _, n := range daemonNodes() {
		objects = append(objects, n)
	}
	for _, ds := range daemonSets() {
		objects = append(objects, ds)
	}
	for _, o := range objects {
		create(t, kube, o)
	}
	c := source.New(builder.NodePool("p").Obj(), builder.EC2NodeClass(builder.DefaultClass).Ready().Obj())
	b := view.New(c.Source())
	var wrong []string
	// The controllers take their time: nodes lose the taint they are born with, then get their pods.
	_ = wait.PollUntilContextTimeout(t.Context(), 500*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		put(t, c, kube, &corev1.LimitRangeList{}, &nodev1.RuntimeClassList{}, &corev1.NodeList{})
		wrong = unlike(t, kube, c, b)
		return len(wrong) == 0, nil
	})
	for _, w := range wrong {
		t.Error(w)
	}
}

// unlike lists in what the pods of the cluster's daemonsets are not what the model expects.
func unlike(t *testing.T, kube client.Client, c *source.Cluster, b *view.Builder) (wrong []string) {
	t.Helper()
	var sets appsv1.DaemonSetList
	var pods corev1.PodList
	for _, l := range []client.ObjectList{&sets, &pods} {
		if err := kube.List(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	if len(sets.Items) != len(daemonSets()) {
		t.Fatalf("the cluster has %d daemonsets", len(sets.Items))
	}
	for i := range sets.Items {
		ds := &sets.Items[i]
		c.Put(ds)
		v := viewOf(t, b)
		c.Delete(ds)
		expected := v.Pool("p").Daemons[0]
		differ := func(what string, model, cluster any) {
			if diff := cmp.Diff(model, cluster); diff != "" {
				wrong = append(wrong, fmt.Sprintf("%s/%s: %s (-model +cluster):\n%s", ds.Namespace, ds.Name, what, diff))
			}
		}
		var want, got []string
		byName := map[string]*capacity.Node{}
		for _, n := range v.Nodes {
			byName[n.Name] = n
			if _, ok := expected.Tolerates(n.Taints); ok && n.Satisfies(expected.Terms) {
				want = append(want, n.Name)
			}
		}
		for k := range pods.Items {
			if p := &pods.Items[k]; metav1.IsControlledBy(p, ds) {
				made := b.Pod(p).Class
				// A pod that is made for a node which its runtime class rules out stays pending for ever.
				if n := madeFor(p); byName[n] != nil && byName[n].Satisfies(made.Terms) {
					got = append(got, n)
				}
				differ("requests", expected.Requests.String(), made.Requests.String())
				differ("host ports", expected.HostPorts, made.HostPorts)
			}
		}
		slices.Sort(got)
		differ("nodes", want, got)
	}
	return wrong
}

// create writes an object and, for a node, that it is ready.
func create(t *testing.T, kube client.Client, o client.Object) {
	t.Helper()
	n, isNode := o.(*corev1.Node)
	var status corev1.NodeStatus
	if isNode {
		status = n.Status
	}
	if err := kube.Create(t.Context(), o); err != nil {
		t.Fatalf("creating %T %s: %v", o, o.GetName(), err)
	}
	if isNode {
		bare := n.DeepCopy()
		n.Status = status
		for i := range n.Status.Conditions {
			n.Status.Conditions[i].LastHeartbeatTime = metav1.Now()
		}
		if err := kube.Status().Patch(t.Context(), n, client.MergeFrom(bare)); err != nil {
			t.Fatalf("making node %s ready: %v", n.Name, err)
		}
	}
}

// put copies lists of objects from the cluster into the source.
func put(t *testing.T, c *source.Cluster, kube client.Client, lists ...client.ObjectList) {
	t.Helper()
	for _, l := range lists {
		if err := kube.List(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		switch l := l.(type) {
		case *corev1.LimitRangeList:
			each(l.Items, func(o *corev1.LimitRange) { c.Put(o) })
		case *nodev1.RuntimeClassList:
			each(l.Items, func(o *nodev1.RuntimeClass) { c.Put(o) })
		case *corev1.NodeList:
			each(l.Items, func(o *corev1.Node) { c.Put(o) })
		}
	}
}

func each[T any](items []T, do func(*T)) {
	for i := range items {
		do(&items[i])
	}
}

func viewOf(t *testing.T, b *view.Builder) *capacity.View {
	t.Helper()
	v, err := b.Build(t.Context(), view.Pending{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// madeFor is the node a daemonset pod was made for: it is bound to it by name, or by affinity until it is.
func madeFor(p *corev1.Pod) string {
	if p.Spec.NodeName != "" {
		return p.Spec.NodeName
	}
	return p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
}
