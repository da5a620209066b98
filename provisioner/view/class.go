// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// hostPorts are the ports of containers and of sidecars (init containers that restart always), as the scheduler's
// NodePorts plugin counts them.
func hostPorts(pod *corev1.Pod) []capacity.HostPort {
	var out []capacity.HostPort
	add := func(ports []corev1.ContainerPort) {
		for _, p := range ports {
			if p.HostPort > 0 {
				hp := capacity.HostPort{IP: p.HostIP, Protocol: p.Protocol, Port: p.HostPort}
				if hp.IP == "0.0.0.0" || hp.IP == "::" {
					hp.IP = ""
				}
				if hp.Protocol == "" {
					hp.Protocol = corev1.ProtocolTCP
				}
				out = append(out, hp)
			}
		}
	}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c.Ports)
		}
	}
	for _, c := range pod.Spec.Containers {
		add(c.Ports)
	}
	return out
}

// class builds the class of a signature. Parts that cannot be understood make the class fit nowhere or constrain
// nothing exactly as the scheduler treats them: an invalid selector matches no pod, an invalid node affinity term no node.
func (s signature) class(id string) *capacity.Class {
	c := &capacity.Class{
		ID:          id,
		Namespace:   s.Namespace,
		Labels:      labels.Set(s.Labels),
		Requests:    s.Requests.Max(capacity.Resources{}), // nothing negative: it would make room
		Tolerations: s.Tolerations,
		HostPorts:   s.Ports,
		Unsupported: s.Unsupported,
	}
	c.Requests.Pods, c.Requests.Volumes = 1, s.Attach
	s.nodeTerms(c)
	for _, sp := range s.Spread {
		if sp.WhenUnsatisfiable == corev1.DoNotSchedule {
			c.Spread = append(c.Spread, s.spread(sp))
		} else {
			c.SoftSpread = append(c.SoftSpread, s.spread(sp))
		}
	}
	c.Affinity = together(s.PodAffinity)
	for _, t := range s.PodAnti {
		c.AntiAffinity = append(c.AntiAffinity, t.class())
	}
	for _, t := range s.PreferredAffinity {
		c.PreferredAffinity = append(c.PreferredAffinity, capacity.WeightedTerm{Weight: t.Weight, PodTerm: t.class()})
	}
	for _, t := range s.PreferredAnti {
		c.PreferredAntiAffinity = append(c.PreferredAntiAffinity, capacity.WeightedTerm{Weight: t.Weight, PodTerm: t.class()})
	}
	return c
}

// nodeTerms sets the alternatives: node selector ∧ one node affinity term, and with them one way to reach the volumes.
func (s signature) nodeTerms(c *capacity.Class) {
	base := capacity.FromLabels(s.Selector)
	c.NodeTerms = []capacity.Requirements{base}
	if s.Affinity != nil {
		c.NodeTerms = nil
		for _, t := range s.Affinity.NodeSelectorTerms {
			if reqs, err := nodeTerm(t); err == nil {
				c.NodeTerms = append(c.NodeTerms, base.And(reqs))
			}
		}
	}
	for _, p := range s.Preferred {
		if reqs, err := nodeTerm(p.Preference); err == nil {
			c.Preferred = append(c.Preferred, capacity.PreferredTerm{Weight: p.Weight, Requirements: reqs})
		}
	}
	// A requirement without a value says that no node will do, and its key why.
	if len(c.NodeTerms) == 0 {
		c.NodeTerms = []capacity.Requirements{capacity.NewRequirements(capacity.In("spec.affinity.nodeAffinity"))}
	}
	c.Terms = c.NodeTerms
	if s.Volumes == nil {
		return
	}
	c.Terms = nil
	for _, a := range c.NodeTerms {
		for _, v := range s.Volumes {
			if reqs, err := capacity.FromSelectors(v); err == nil {
				c.Terms = append(c.Terms, a.And(reqs))
			}
		}
	}
	if len(c.Terms) == 0 {
		c.Terms = []capacity.Requirements{capacity.NewRequirements(capacity.In("spec.volumes"))}
	}
}

// errEmptyTerm is the error of a term without anything in it, which matches no node.
var errEmptyTerm = errors.New("an empty term matches no node")

// nodeTerm reads a node affinity term, the name of the node under capacity.NodeNameField. What the scheduler cannot read (a
// value that no label can have, for instance a negative bound) is an error here, too.
func nodeTerm(t corev1.NodeSelectorTerm) (capacity.Requirements, error) {
	if len(t.MatchExpressions)+len(t.MatchFields) == 0 {
		return nil, errEmptyTerm
	}
	if _, err := nodeaffinity.NewNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{t}}); err != nil {
		return nil, err
	}
	out, err := capacity.FromSelectors(t.MatchExpressions)
	if err != nil {
		return nil, err
	}
	for _, f := range t.MatchFields {
		q, err := capacity.NewRequirement(capacity.NodeNameField, f.Operator, f.Values...)
		if err != nil {
			return nil, err
		}
		out = out.With(q)
	}
	return out, nil
}

func (s signature) spread(sp corev1.TopologySpreadConstraint) capacity.Spread {
	sel, err := metav1.LabelSelectorAsSelector(sp.LabelSelector)
	if err != nil {
		sel = labels.Nothing()
	}
	for _, k := range sp.MatchLabelKeys {
		if v, ok := s.Labels[k]; ok {
			if r, err := labels.NewRequirement(k, "in", []string{v}); err == nil {
				sel = sel.Add(*r)
			}
		}
	}
	if sel.Empty() {
		sel = labels.Nothing() // an empty selector counts no pod (plugin PodTopologySpread), though it selects all
	}
	out := capacity.Spread{
		Key:           capacity.CanonicalKey(sp.TopologyKey),
		MaxSkew:       int(sp.MaxSkew),
		MinDomains:    1,
		Selector:      sel,
		HonorAffinity: sp.NodeAffinityPolicy == nil || *sp.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor,
		HonorTaints:   sp.NodeTaintsPolicy != nil && *sp.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor,
	}
	if sp.MinDomains != nil {
		out.MinDomains = int(*sp.MinDomains)
	}
	out.ID = termID(sets.New(s.Namespace), sel)
	return out
}

func (t term) class() capacity.PodTerm {
	sel, err := metav1.LabelSelectorAsSelector(t.Selector)
	if err != nil {
		sel = labels.Nothing()
	}
	return capacity.PodTerm{
		Key: capacity.CanonicalKey(t.Key), Selector: sel, Namespaces: sets.New(t.Namespaces...),
		ID: termID(sets.New(t.Namespaces...), sel),
	}
}

// together converts the affinity terms of one pod. A pod counts for any of them only if it satisfies all of them (plugin
// InterPodAffinity), so every term gets the selectors and namespaces of all, and keeps its own topology key.
func together(terms []term) []capacity.PodTerm {
	var out []capacity.PodTerm
	for _, t := range terms {
		out = append(out, t.class())
	}
	if len(out) < 2 {
		return out
	}
	sel, spaces := labels.NewSelector(), out[0].Namespaces
	for _, t := range out {
		reqs, selectable := t.Selector.Requirements()
		if !selectable {
			sel = labels.Nothing()
			break
		}
		sel, spaces = sel.Add(reqs...), spaces.Intersection(t.Namespaces)
	}
	id := termID(spaces, sel)
	for i := range out {
		out[i].Selector, out[i].Namespaces, out[i].ID = sel, spaces, id
	}
	return out
}

// termID tells terms apart that select different pods. The selector of nothing prints like that of everything.
func termID(namespaces sets.Set[string], sel labels.Selector) string {
	id := strings.Join(sets.List(namespaces), ",") + "/"
	if _, selectable := sel.Requirements(); !selectable {
		return id + "nothing"
	}
	return id + "(" + sel.String() + ")"
}
