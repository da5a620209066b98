// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package fidelity

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/test/builder"
)

// world is a generated cluster and the pod that wants a place in it.
type world struct {
	nodes []*corev1.Node
	bound []*corev1.Pod
	pod   *corev1.Pod
}

// maker draws objects from a seed.
type maker struct {
	*rand.Rand
	uids int
}

func newMaker(seed uint64) *maker { return &maker{Rand: rand.New(rand.NewPCG(seed, 77))} }

func pick[T any](m *maker, of ...T) T { return of[m.IntN(len(of))] }

// one in n.
func (m *maker) one(n int) bool { return m.IntN(n) == 0 }

const gpu = corev1.ResourceName("nvidia.com/gpu")

func namespaces() []*corev1.Namespace {
	out := make([]*corev1.Namespace, 0, 2)
	for name, env := range map[string]string{"default": "dev", "shop": "prod"} {
		out = append(out, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"env": env}}})
	}
	return out
}

// single is a pod with rules about single nodes only, and some nodes.
func (m *maker) single() world {
	w := world{}
	for i := range 4 {
		w.nodes = append(w.nodes, m.node(i))
		for k := range m.IntN(4) {
			w.bound = append(w.bound, m.running(fmt.Sprintf("bound-%d-%d", i, k), fmt.Sprintf("node-%d", i)))
		}
	}
	w.pod = m.pending()
	return w
}

// several is a few nodes and a pod with topology rules, among pods that have some too.
func (m *maker) several() world {
	w := world{}
	for i := range 2 + m.IntN(4) {
		n := m.node(i)
		if !m.one(4) { // room for everything, so that topology decides
			n.Spec.Taints, n.Status.Allocatable = nil, roomy()
		}
		w.nodes = append(w.nodes, n)
	}
	for i := range m.IntN(8) {
		p := m.running(fmt.Sprintf("bound-%d", i), pick(m, w.nodes...).Name)
		if m.one(3) {
			m.keepApart(p)
		}
		if m.one(12) {
			p.DeletionTimestamp = &metav1.Time{Time: builder.Epoch()}
		}
		w.bound = append(w.bound, p)
	}
	w.pod = m.pending()
	if !m.one(3) { // no rules about single nodes
		w.pod = m.base("pending").Obj()
	}
	for range 1 + m.IntN(2) {
		switch m.IntN(3) {
		case 0:
			m.spread(w.pod)
		case 1:
			m.keepApart(w.pod)
		default:
			m.stayNear(w.pod)
		}
	}
	return w
}

func (m *maker) node(i int) *corev1.Node {
	b := builder.Node(fmt.Sprintf("node-%d", i)).CPU(fmt.Sprint(1+m.IntN(6))).Memory(fmt.Sprintf("%dGi", 1+m.IntN(12))).
		Resource(corev1.ResourcePods, fmt.Sprint(pick(m, 1, 2, 3, 110))).Resource(corev1.ResourceEphemeralStorage, "20Gi")
	if !m.one(6) {
		b.Zone(pick(m, "a", "b", "c"))
	}
	if m.one(3) {
		b.Resource(gpu, fmt.Sprint(m.IntN(3)))
	}
	for _, key := range []string{"team", "gen"} {
		if !m.one(3) {
			b.Label(key, m.value())
		}
	}
	for range m.IntN(3) {
		if m.one(2) {
			b.Taint(pick(m, "dedicated", "gpu"), pick(m, "", "x", "5", "07"), pick(m, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule))
		}
	}
	if m.one(12) {
		b.NotReady()
	}
	if m.one(16) {
		b.Cordoned()
	}
	return b.Obj()
}

func (m *maker) value() string { return pick(m, "", "x", "y", "3", "4", "5", "05") }

// running is a pod bound to the node.
func (m *maker) running(name, node string) *corev1.Pod {
	b := m.base(name).On(node)
	if m.one(3) {
		b.HostPort(int32(8000 + m.IntN(2)))
	}
	p := b.Obj()
	m.addresses(p)
	return p
}

func (m *maker) base(name string) *builder.PodBuilder {
	m.uids++
	b := builder.Pod(name).UID(fmt.Sprintf("uid-%d", m.uids)).Namespace(pick(m, "default", "shop")).Label("app", pick(m, "web", "db")).Label("v", pick(m, "1", "2"))
	if !m.one(4) {
		b.CPU(fmt.Sprintf("%dm", m.IntN(2500)))
	}
	if !m.one(4) {
		b.Memory(fmt.Sprintf("%dMi", m.IntN(4000)))
	}
	if m.one(6) {
		b.Request(gpu, fmt.Sprint(m.IntN(2)))
	}
	if m.one(8) {
		b.Request(corev1.ResourceEphemeralStorage, pick(m, "1Gi", "25Gi"))
	}
	if m.one(8) {
		b.InitContainer("init", fmt.Sprint(m.IntN(5)), "1Gi")
	}
	if m.one(8) {
		b.Sidecar("proxy", "200m", "300Mi")
	}
	if m.one(10) {
		b.PodRequest(corev1.ResourceCPU, fmt.Sprint(3+m.IntN(3)))
	}
	if m.one(10) {
		b.Overhead(corev1.ResourceMemory, "500Mi")
	}
	return b
}

// pending is a pod with rules about single nodes.
func (m *maker) pending() *corev1.Pod {
	b := m.base("pending")
	if m.one(4) {
		b.NodeSelector(pick(m, "team", "gen", corev1.LabelTopologyZone, corev1.LabelHostname), pick(m, "x", "4", "a", "node-0"))
	}
	if m.one(2) {
		for range 1 + m.IntN(2) {
			var term []corev1.NodeSelectorRequirement
			for range m.IntN(3) {
				term = append(term, m.requirement())
			}
			b.NodeAffinity(term...)
		}
	}
	for range m.IntN(3) {
		b.Tolerate(corev1.Toleration{
			Key:      pick(m, "dedicated", "gpu", corev1.TaintNodeNotReady),
			Operator: pick(m, corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt),
			Value:    pick(m, "", "x", "4", "6"), Effect: pick(m, "", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute),
		})
	}
	if m.one(10) {
		b.Tolerate(corev1.Toleration{Operator: corev1.TolerationOpExists})
	}
	if m.one(3) {
		b.HostPort(int32(8000 + m.IntN(2)))
	}
	p := b.Obj()
	m.addresses(p)
	if na := p.Spec.Affinity; na != nil && m.one(6) { // a node by name, in every term
		terms := na.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		for i := range terms {
			terms[i].MatchFields = []corev1.NodeSelectorRequirement{builder.In("metadata.name", pick(m, "node-0", "node-0", "node-1"))}
			if i > 0 {
				terms[i].MatchFields = terms[0].MatchFields
			}
		}
	}
	return p
}

// addresses binds some host ports to one address, and gives sidecars some.
func (m *maker) addresses(p *corev1.Pod) {
	for _, c := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range c {
			if len(c[i].Ports) == 0 && m.one(6) {
				c[i].Ports = []corev1.ContainerPort{{ContainerPort: 1, HostPort: 8000, Protocol: corev1.ProtocolTCP}}
			}
			for j := range c[i].Ports {
				c[i].Ports[j].HostIP = pick(m, "", "", "0.0.0.0", "10.0.0.1", "10.0.0.2", "::")
				c[i].Ports[j].Protocol = pick(m, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP)
			}
		}
	}
}

func (m *maker) requirement() corev1.NodeSelectorRequirement {
	key := pick(m, "team", "gen", "gen", corev1.LabelTopologyZone)
	switch op := pick(m, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt); op {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		return builder.Requirement(key, op, m.value(), pick(m, "a", "b", "x"))
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		return builder.Requirement(key, op)
	default:
		return builder.Requirement(key, op, pick(m, "3", "4", "-1", "x"))
	}
}

func (m *maker) selector() *metav1.LabelSelector {
	switch m.IntN(6) {
	case 0:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"db"}}}}
	case 1:
		return pick(m, nil, &metav1.LabelSelector{})
	default:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": pick(m, "web", "db")}}
	}
}

func (m *maker) key() string {
	return pick(m, corev1.LabelTopologyZone, corev1.LabelTopologyZone, corev1.LabelHostname, corev1.LabelHostname, "team")
}

// term is an inter-pod term of the pod. Label keys are in its selector as well, where the API server puts them.
func (m *maker) term(p *corev1.Pod) corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{TopologyKey: m.key(), LabelSelector: m.selector()}
	if t.LabelSelector != nil && m.one(5) {
		op := pick(m, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn)
		if op == metav1.LabelSelectorOpIn {
			t.MatchLabelKeys = []string{"v"}
		} else {
			t.MismatchLabelKeys = []string{"v"}
		}
		t.LabelSelector.MatchExpressions = append(t.LabelSelector.MatchExpressions, metav1.LabelSelectorRequirement{Key: "v", Operator: op, Values: []string{p.Labels["v"]}})
	}
	switch m.IntN(5) {
	case 0:
		t.Namespaces = []string{"shop"}
	case 1:
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": pick(m, "dev", "prod", "none")}}
	case 2:
		t.NamespaceSelector = &metav1.LabelSelector{}
	}
	return t
}

func affinity(p *corev1.Pod) *corev1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	return p.Spec.Affinity
}

func (m *maker) keepApart(p *corev1.Pod) {
	a := affinity(p)
	if a.PodAntiAffinity == nil {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{}
	}
	r := &a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	*r = append(*r, m.term(p))
}

func (m *maker) stayNear(p *corev1.Pod) {
	a := affinity(p)
	if a.PodAffinity == nil {
		a.PodAffinity = &corev1.PodAffinity{}
	}
	r := &a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	*r = append(*r, m.term(p))
}

// spread adds a spread over zones or nodes.
func (m *maker) spread(p *corev1.Pod) {
	c := corev1.TopologySpreadConstraint{
		TopologyKey: m.key(), MaxSkew: int32(1 + m.IntN(2)), WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: m.selector(),
	}
	if m.one(3) {
		c.MinDomains = new(int32(1 + m.IntN(4)))
	}
	if m.one(3) {
		c.NodeAffinityPolicy = new(pick(m, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore))
	}
	if m.one(3) {
		c.NodeTaintsPolicy = new(pick(m, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore))
	}
	if m.one(3) {
		c.MatchLabelKeys = []string{"v"}
	}
	p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
}
