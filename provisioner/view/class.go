// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// perPodLabels differ between the pods of one owner without meaning anything to placement. They are kept out of a class
// so that a StatefulSet or an indexed Job is one class.
var perPodLabels = sets.New("statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index")

// namespaces resolves the namespace selector of an inter-pod term.
type namespaces func(labels.Selector) []string

// signature is everything of a pod that decides where it may go, in a form that marshals deterministically.
type signature struct {
	Namespace   string
	Labels      map[string]string
	Requests    corev1.ResourceList
	Selector    map[string]string                  `json:",omitempty"`
	Affinity    *corev1.NodeSelector               `json:",omitempty"`
	Volumes     [][]corev1.NodeSelectorRequirement `json:",omitempty"`
	Tolerations []corev1.Toleration                `json:",omitempty"`
	Ports       []capacity.HostPort                `json:",omitempty"`
	Spread      []corev1.TopologySpreadConstraint  `json:",omitempty"`
	PodAffinity []corev1.PodAffinityTerm           `json:",omitempty"`
	PodAnti     []corev1.PodAffinityTerm           `json:",omitempty"`
}

// sign extracts the signature. volumes are alternative node requirements the pod's volumes add, nil for none.
func sign(pod *corev1.Pod, volumes [][]corev1.NodeSelectorRequirement) signature {
	s := signature{
		Namespace:   pod.Namespace,
		Labels:      map[string]string{},
		Requests:    resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}),
		Selector:    pod.Spec.NodeSelector,
		Volumes:     volumes,
		Tolerations: pod.Spec.Tolerations,
		Ports:       hostPorts(pod),
	}
	for k, v := range pod.Labels {
		if !perPodLabels.Has(k) {
			s.Labels[k] = v
		}
	}
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			s.Spread = append(s.Spread, c)
		}
	}
	if a := pod.Spec.Affinity; a != nil {
		if a.NodeAffinity != nil {
			s.Affinity = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		}
		if a.PodAffinity != nil {
			s.PodAffinity = a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		}
		if a.PodAntiAffinity != nil {
			s.PodAnti = a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		}
	}
	return s
}

// id digests the signature; 128 bits, so that equal IDs are equal signatures for all practical purposes.
func (s signature) id() string {
	raw, err := json.Marshal(s)
	if err != nil {
		panic("marshalling a struct of Kubernetes API values cannot fail: " + err.Error())
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

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
func (s signature) class(id string, ns namespaces) *capacity.Class {
	c := &capacity.Class{
		ID:          id,
		Namespace:   s.Namespace,
		Labels:      labels.Set(s.Labels),
		Requests:    capacity.FromList(s.Requests),
		Tolerations: s.Tolerations,
		HostPorts:   s.Ports,
	}
	c.Requests.Pods = 1
	s.terms(c)
	for _, sp := range s.Spread {
		c.Spread = append(c.Spread, s.spread(sp))
	}
	for _, t := range s.PodAffinity {
		c.Affinity = append(c.Affinity, s.term(t, ns))
	}
	for _, t := range s.PodAnti {
		c.AntiAffinity = append(c.AntiAffinity, s.term(t, ns))
	}
	return c
}

// terms sets the alternatives: node selector ∧ one node affinity term ∧ one way to reach the volumes.
func (s signature) terms(c *capacity.Class) {
	base := capacity.FromLabels(s.Selector)
	alternatives := []capacity.Requirements{base}
	if s.Affinity != nil {
		alternatives = nil
		for _, t := range s.Affinity.NodeSelectorTerms {
			if len(t.MatchExpressions) == 0 && len(t.MatchFields) == 0 {
				continue // an empty term matches no node
			}
			reqs, err := capacity.FromSelectors(t.MatchExpressions)
			if err != nil {
				continue
			}
			for _, f := range t.MatchFields {
				if f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn {
					if c.NodeNames == nil {
						c.NodeNames = sets.New[string]()
					}
					c.NodeNames.Insert(f.Values...)
				}
			}
			alternatives = append(alternatives, base.And(reqs))
		}
	}
	for _, a := range alternatives {
		if len(s.Volumes) == 0 {
			c.Terms = append(c.Terms, a)
			continue
		}
		for _, v := range s.Volumes {
			if reqs, err := capacity.FromSelectors(v); err == nil {
				c.Terms = append(c.Terms, a.And(reqs))
			}
		}
	}
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
	out.ID = s.Namespace + "/" + sel.String()
	return out
}

func (s signature) term(t corev1.PodAffinityTerm, ns namespaces) capacity.PodTerm {
	sel, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if err != nil {
		sel = labels.Nothing()
	}
	spaces := sets.New(t.Namespaces...)
	if t.NamespaceSelector != nil {
		if nsSel, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector); err == nil {
			spaces.Insert(ns(nsSel)...)
		}
	} else if len(t.Namespaces) == 0 {
		spaces.Insert(s.Namespace)
	}
	list := sets.List(spaces)
	slices.Sort(list)
	return capacity.PodTerm{
		Key: capacity.CanonicalKey(t.TopologyKey), Selector: sel, Namespaces: spaces,
		ID: strings.Join(list, ",") + "/" + sel.String(),
	}
}
