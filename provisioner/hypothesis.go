// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/hypothesis"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// hypotheses describes the nodes that are on their way and those the plan would buy, and every placement in plan order.
func hypotheses(v *capacity.View, r *plan.Result, pods Pods) ([]hypothesis.Node, []hypothesis.Trial) {
	var nodes []hypothesis.Node
	for _, n := range v.Nodes {
		if onItsWay(n) {
			nodes = append(nodes, inFlight(v, n, pods))
		}
	}
	type stepped struct {
		step int
		t    hypothesis.Trial
	}
	var ordered []stepped
	for _, pl := range r.Placements {
		name := pl.Node.Name
		if onItsWay(pl.Node) {
			name = pl.Node.Claim
		}
		ordered = append(ordered, stepped{step: pl.Step, t: hypothesis.Trial{Pod: pods.Wanting[pl.Pod.UID], Node: name}})
	}
	for i := range r.Launches {
		l := &r.Launches[i]
		h := template(l, i)
		nodes = append(nodes, h)
		for k, q := range l.Pods {
			ordered = append(ordered, stepped{step: l.Steps[k], t: hypothesis.Trial{Pod: pods.Wanting[q.UID], Node: h.Node.Name}})
		}
	}
	slices.SortStableFunc(ordered, func(a, b stepped) int { return a.step - b.step })
	trials := make([]hypothesis.Trial, 0, len(ordered))
	for _, o := range ordered {
		trials = append(trials, o.t)
	}
	return nodes, trials
}

func onItsWay(n *capacity.Node) bool {
	return n.Claim != "" && (n.Phase == capacity.Planned || n.Phase == capacity.Launched)
}

// template is the node a launch would bring, at its least: the labels of its cheapest offering, the smallest
// allocatable of all its offerings, and the daemonset pods it will have.
func template(l *plan.Launch, i int) hypothesis.Node {
	off, labels := l.Offerings[0], l.Labels()
	alloc := off.Type.Allocatable
	for _, o := range l.Offerings[1:] {
		alloc = alloc.Min(o.Type.Allocatable)
	}
	// What the plan sets aside for daemonset pods beyond those of the cheapest offering is taken off as well: another
	// offering may run more of them.
	aside := l.Requests
	for _, q := range l.Pods {
		aside = aside.Sub(q.Class.Requests)
	}
	name := fmt.Sprintf("slipway-planned-%d", i)
	daemons := daemons(l.Pool, name, off.Type, labels)
	for _, d := range daemons {
		aside = aside.Sub(d.class.Requests)
	}
	h := hypothesis.Node{
		Node:         node(name, labels, l.Pool.Taints, alloc.Sub(aside.Max(capacity.Resources{}))),
		AttachLimits: attachLimits(alloc, nil),
	}
	for _, d := range daemons {
		h.Present = append(h.Present, d.pod(d.class.Requests))
	}
	return h
}

// inFlight is a node on its way as it will be when it is usable, less what is used on it by anything but the pods
// reserved on it. It goes by its claim's name: under its own it may have joined already, with the taints of a node that
// boots.
func inFlight(v *capacity.View, n *capacity.Node, pods Pods) hypothesis.Node {
	alloc := n.Free()
	var reserved capacity.Resources
	for _, p := range pods.Reserved[n.Claim] {
		reserved = reserved.Add(pods.Class(p).Requests)
	}
	// Whatever comes of what is undecided about the node, the plan holds: the first value stands for all.
	labels := maps.Clone(n.Labels)
	for key, r := range n.Requirements {
		if _, decided := labels[key]; !decided && !r.AllowsAbsent() && r.Finite() {
			if v, ok := r.Any(); ok {
				labels[key] = v
			}
		}
	}
	h := hypothesis.Node{Present: slices.Clone(pods.Reserved[n.Claim]), AttachLimits: attachLimits(alloc, reserved.Volumes)}
	alloc = alloc.Add(reserved)
	if pool := v.Pool(n.Pool); pool != nil {
		for _, d := range daemons(pool, n.Claim, &capacity.InstanceType{Labels: n.Labels}, n.Labels) {
			h.Present = append(h.Present, d.pod(capacity.Resources{})) // what it asks for is used already
			alloc.Pods++
		}
	}
	h.Node = node(n.Claim, labels, n.Taints, alloc)
	return h
}

// attachLimits are the limits left, and as many volumes on top as are counted already but are going to be counted again.
func attachLimits(left capacity.Resources, again []capacity.Quantity) map[string]int32 {
	out := make(map[string]int32, len(left.Volumes))
	for _, q := range left.Volumes {
		out[string(q.Name)] = int32(max(min(q.Value, math.MaxInt32), 0))
	}
	for _, q := range again {
		if n, limited := out[string(q.Name)]; limited {
			out[string(q.Name)] = n + int32(min(q.Value, math.MaxInt32-int64(n)))
		}
	}
	return out
}

// daemonOn is a daemonset class that has a pod on a node.
type daemonOn struct {
	class *capacity.Class
	node  string
	index int
}

func daemons(pool *capacity.Pool, node string, t *capacity.InstanceType, labels map[string]string) []daemonOn {
	var out []daemonOn
	for i, d := range pool.Daemons {
		if pool.Runs(d, t, labels) {
			out = append(out, daemonOn{class: d, node: node, index: i})
		}
	}
	return out
}

// pod is the daemonset's pod as far as it matters to the pods beside it: what it asks for, its host ports, and the labels
// others select it by.
func (d daemonOn) pod(requests capacity.Resources) *corev1.Pod {
	requests.Pods = 0 // the scheduler counts the pod itself
	container := corev1.Container{Name: "daemon", Resources: corev1.ResourceRequirements{Requests: requests.List()}}
	for _, p := range d.class.HostPorts {
		container.Ports = append(container.Ports, corev1.ContainerPort{HostIP: p.IP, HostPort: p.Port, ContainerPort: p.Port, Protocol: p.Protocol})
	}
	name := fmt.Sprintf("%s-daemon-%d", d.node, d.index)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.class.Namespace, Name: name, UID: types.UID(name), Labels: d.class.Labels},
		Spec:       corev1.PodSpec{NodeName: d.node, Containers: []corev1.Container{container}},
	}
}

func node(name string, labels map[string]string, taints []corev1.Taint, alloc capacity.Resources) *corev1.Node {
	labels = maps.Clone(labels)
	labels[corev1.LabelHostname] = name
	list := alloc.List()
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels},
		Spec:       corev1.NodeSpec{Taints: taints},
		Status:     corev1.NodeStatus{Allocatable: list, Capacity: list, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}
