// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package input writes what is to be planned for Karpenter's side of a comparison, whose programs (test/compare) share no code with
// Slipway: pods and pools as manifests, and the instance types with their prices. Import level 6 (test).
package input

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// File is what Karpenter's side reads: see test/compare/input.
type File struct {
	Pools   []*karpv1.NodePool `json:"pools"`
	Daemons []*corev1.Pod      `json:"daemons"`
	Pods    []Group            `json:"pods"`
	Types   []InstanceType     `json:"types"`
}

// Group is pods that are alike.
type Group struct {
	Pod   *corev1.Pod `json:"pod"`
	Count int         `json:"count"`
}

// InstanceType is a type with the ways to buy it. Absent are labels its nodes never have.
type InstanceType struct {
	Name        string              `json:"name"`
	Labels      map[string]string   `json:"labels"`
	Absent      []string            `json:"absent"`
	Capacity    corev1.ResourceList `json:"capacity"`
	Allocatable corev1.ResourceList `json:"allocatable"`
	Offerings   []Offering          `json:"offerings"`
}

// Offering is a way to buy a type, at US dollars an hour.
type Offering struct {
	Zone         string  `json:"zone"`
	ZoneID       string  `json:"zoneID"`
	CapacityType string  `json:"capacityType"`
	Price        float64 `json:"price"`
}

// Of is the input of a plan for Karpenter's side. It fails if the input has something that cannot be written.
func Of(in plan.Input) (*File, error) {
	f := &File{}
	for _, p := range in.View.Pools {
		pool, err := nodePool(p)
		if err != nil {
			return nil, err
		}
		f.Pools = append(f.Pools, pool)
	}
	catalog := in.View.Pools[0].Catalog
	for _, t := range catalog.Types {
		f.Types = append(f.Types, typeOf(t))
	}
	for _, d := range in.View.Pools[0].Daemons {
		p, err := Pod(d)
		if err != nil {
			return nil, err
		}
		f.Daemons = append(f.Daemons, p)
	}
	return f, f.addPods(in.Pods)
}

// Save writes a value as JSON, for one reader.
func Save(path string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing the input: %w", err)
	}
	return os.WriteFile(path, raw, 0o600)
}

// addPods groups pods of one class that follow each other.
func (f *File) addPods(pods []*capacity.Pod) error {
	for i := 0; i < len(pods); {
		n := i
		for n < len(pods) && pods[n].Class == pods[i].Class {
			n++
		}
		p, err := Pod(pods[i].Class)
		if err != nil {
			return err
		}
		p.Name = pods[i].Name
		f.Pods = append(f.Pods, Group{p, n - i})
		i = n
	}
	return nil
}

func typeOf(t *capacity.InstanceType) InstanceType {
	out := InstanceType{Name: t.Name, Labels: t.Labels, Absent: t.Absent, Capacity: t.Capacity.List(), Allocatable: t.Allocatable.List()}
	for _, o := range t.Offerings {
		out.Offerings = append(out.Offerings, Offering{o.Zone, o.ZoneID, o.CapacityType, o.Price})
	}
	return out
}

func nodePool(p *capacity.Pool) (*karpv1.NodePool, error) {
	if p.LimitNodes != nil || p.StartupTaints != nil || p.Weight != 0 || p.Static || p.Usage.CPU != 0 || p.Available.Len() != len(p.Catalog.Offerings) {
		return nil, fmt.Errorf("exporting pool %q: it has something that is not exported", p.Name)
	}
	out := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Spec: karpv1.NodePoolSpec{Limits: karpv1.Limits(p.Limits)}}
	out.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	out.Spec.Template.Spec.Taints = p.Taints
	for _, key := range p.Requirements.Keys() {
		if key == karpv1.NodePoolLabelKey {
			continue
		}
		for _, s := range p.Requirements[key].Selectors() {
			out.Spec.Template.Spec.Requirements = append(out.Spec.Template.Spec.Requirements, karpv1.NodeSelectorRequirementWithMinValues{Key: s.Key, Operator: s.Operator, Values: s.Values})
		}
	}
	return out, nil
}

// Pod is a pod of the class.
func Pod(c *capacity.Class) (*corev1.Pod, error) {
	if len(c.HostPorts)+len(c.SoftSpread)+len(c.Preferred)+len(c.PreferredAffinity)+len(c.PreferredAntiAffinity)+len(c.Requests.Volumes) > 0 {
		return nil, fmt.Errorf("exporting class %q: it has something that is not exported", c.ID)
	}
	requests := c.Requests.List()
	delete(requests, corev1.ResourcePods) // a pod counts by being one
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: c.ID, Namespace: c.Namespace, Labels: maps.Clone(c.Labels)},
		Spec: corev1.PodSpec{
			Tolerations: c.Tolerations,
			Containers:  []corev1.Container{{Name: "c", Image: "c", Resources: corev1.ResourceRequirements{Requests: requests}}},
			Affinity:    &corev1.Affinity{},
		},
	}
	p.Spec.Affinity.NodeAffinity = nodeAffinity(c.Terms)
	for _, s := range c.Spread {
		selector, err := selectorOf(s.Selector)
		if err != nil {
			return nil, err
		}
		constraint := corev1.TopologySpreadConstraint{TopologyKey: s.Key, MaxSkew: int32(s.MaxSkew), WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector}
		if s.MinDomains > 1 {
			constraint.MinDomains = new(int32(s.MinDomains))
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, constraint)
	}
	near, err := podTerms(c.Affinity)
	if err != nil {
		return nil, err
	}
	apart, err := podTerms(c.AntiAffinity)
	if err != nil {
		return nil, err
	}
	if len(near) > 0 {
		p.Spec.Affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: near}
	}
	if len(apart) > 0 {
		p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: apart}
	}
	return p, nil
}

// nodeAffinity is nil if the terms ask for nothing.
func nodeAffinity(terms []capacity.Requirements) *corev1.NodeAffinity {
	if slices.ContainsFunc(terms, func(t capacity.Requirements) bool { return len(t) == 0 }) {
		return nil
	}
	selector := &corev1.NodeSelector{}
	for _, t := range terms {
		var term corev1.NodeSelectorTerm
		for _, key := range t.Keys() {
			term.MatchExpressions = append(term.MatchExpressions, t[key].Selectors()...)
		}
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, term)
	}
	return &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selector}
}

func podTerms(terms []capacity.PodTerm) ([]corev1.PodAffinityTerm, error) {
	var out []corev1.PodAffinityTerm
	for _, t := range terms {
		selector, err := selectorOf(t.Selector)
		if err != nil {
			return nil, err
		}
		out = append(out, corev1.PodAffinityTerm{TopologyKey: t.Key, LabelSelector: selector, Namespaces: slices.Sorted(maps.Keys(t.Namespaces))})
	}
	return out, nil
}

func selectorOf(s labels.Selector) (*metav1.LabelSelector, error) {
	out, err := metav1.ParseToLabelSelector(s.String())
	if err != nil {
		return nil, fmt.Errorf("exporting selector %q: %w", s, err)
	}
	return out, nil
}
