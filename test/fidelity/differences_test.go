// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package fidelity

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/test/builder"
)

// difference is a case in which planner and scheduler do not agree and the comparison does not complain. A pair that the
// planner refuses costs at most a node; one that it takes is seen by the judge, which refuses it before anything is
// bought.
type difference struct {
	name string
	why  string
	// planner says which side takes the pod.
	planner bool
	// explains reports whether the difference may be seen for the node; nil if the generator makes no such case.
	explains func(w world, n *corev1.Node) bool
	// example is the smallest case, about its first node.
	example world
}

func differences() []difference {
	never := func(world, *corev1.Node) bool { return false }
	node := func(name string) *builder.NodeBuilder { return builder.Node(name).CPU("8").Memory("8Gi") }
	return []difference{
		{
			name:     "cordoned node",
			why:      "a cordoned or disrupted node is on its way out: nothing is planned onto it, whatever the pod tolerates",
			explains: func(_ world, n *corev1.Node) bool { return n.Spec.Unschedulable },
			example: world{
				nodes: []*corev1.Node{node("n").Cordoned().Obj()},
				pod:   builder.Pod("p").Tolerate(corev1.Toleration{Operator: corev1.TolerationOpExists}).Obj(),
			},
		},
		{
			name:     "host port on ::",
			why:      "the scheduler takes :: for one address; the kernel binds all of them and the second pod fails to start",
			explains: func(w world, n *corev1.Node) bool { return bindsAll(w.pod) || slices.ContainsFunc(on(w, n), bindsAll) },
			example: world{
				nodes: []*corev1.Node{node("n").Obj()},
				bound: []*corev1.Pod{portOn("::", builder.Pod("b").UID("b").HostPort(80).On("n").Obj())},
				pod:   portOn("10.0.0.1", builder.Pod("p").HostPort(80).Obj()),
			},
		},
		{
			name: "a volume with a zone label, a node without zone",
			why:  "the scheduler lets a node without any zone label reach every such volume; a node in EC2 has a zone, and only in it is the volume",
			explains: func(w world, n *corev1.Node) bool {
				_, zone := n.Labels[corev1.LabelTopologyZone]
				return !zone && slices.ContainsFunc(w.pod.Spec.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, "bound-label") })
			},
			example: world{nodes: []*corev1.Node{node("n").Obj()}, pod: builder.Pod("p").Volume("bound-label-a").Obj()},
		},
		{
			name:     "old label keys",
			why:      "deprecated keys and the EBS driver's zone key are read as the stable ones, as in Karpenter: a new node has them soon",
			planner:  true,
			explains: never,
			example: world{
				nodes: []*corev1.Node{node("n").Zone("a").Obj()},
				pod:   builder.Pod("p").NodeSelector("topology.ebs.csi.aws.com/zone", "a").Obj(),
			},
		},
		{
			name:     "selectors on the name of a StatefulSet's pod",
			why:      "labels that number pods are no part of a class, so that a StatefulSet is one class",
			planner:  true,
			explains: never,
			example: world{
				nodes: []*corev1.Node{node("n").Obj()},
				bound: []*corev1.Pod{builder.Pod("b").UID("b").Apart(corev1.LabelHostname, map[string]string{"statefulset.kubernetes.io/pod-name": "p"}).On("n").Obj()},
				pod:   builder.Pod("p").Label("statefulset.kubernetes.io/pod-name", "p").Obj(),
			},
		},
	}
}

// TestFidelityDifferences shows each listed difference in its smallest form, and that it is one.
func TestFidelityDifferences(t *testing.T) {
	s, c := newStock(t, permanent()...), newPlanner()
	for _, d := range differences() {
		t.Run(d.name, func(t *testing.T) {
			d.example.pod.UID = "pending"
			n := d.example.nodes[0].Name
			refusedBy := s.fits(t.Context(), d.example.pod, d.example.nodes, d.example.bound)[n]
			got, err := c.planned(t.Context(), d.example)
			if err != nil {
				t.Fatal(err)
			}
			if got[n] != d.planner || (refusedBy == "") == d.planner {
				t.Errorf("planner takes the pod: %v, scheduler refuses it with %q; the list says planner %v, scheduler %v", got[n], refusedBy, d.planner, !d.planner)
			}
		})
	}
}

// on lists the pods bound to the node.
func on(w world, n *corev1.Node) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(w.bound), func(p *corev1.Pod) bool { return p.Spec.NodeName != n.Name })
}

func bindsAll(p *corev1.Pod) bool {
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		if slices.ContainsFunc(c.Ports, func(port corev1.ContainerPort) bool { return port.HostIP == "::" }) {
			return true
		}
	}
	return false
}

func portOn(ip string, p *corev1.Pod) *corev1.Pod {
	p.Spec.Containers[0].Ports[0].HostIP = ip
	return p
}
