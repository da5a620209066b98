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
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// perPod reports whether the label differs between the pods of one owner without meaning anything to placement. Such
// labels are kept out of a class so that a StatefulSet or an indexed Job is one class.
func perPod(label string) bool {
	switch label {
	case "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index":
		return true
	}
	return false
}

// signature is everything of a pod that decides where it may go, in a form that marshals deterministically.
type signature struct {
	Namespace string
	Labels    map[string]string
	Requests  corev1.ResourceList
	Selector  map[string]string
	Affinity  *corev1.NodeSelector
	// Volumes are alternative node requirements that the pod's volumes add: nil for none, empty if no node will do.
	Volumes     [][]corev1.NodeSelectorRequirement
	Tolerations []corev1.Toleration
	Ports       []capacity.HostPort
	Spread      []corev1.TopologySpreadConstraint
	PodAffinity []term
	PodAnti     []term
}

// term is an inter-pod term with its namespaces resolved.
type term struct {
	Key        string
	Selector   *metav1.LabelSelector
	Namespaces []string // sorted
}

// sign extracts the signature of the pod. It is not stable, that is, may differ the next time although the pod is the
// same, when it depends on namespaces or volumes, or on how far the resize of a running pod has come.
func (b *Builder) sign(pod *corev1.Pod) (s signature, stable bool) {
	s = signature{
		Namespace:   pod.Namespace,
		Selector:    pod.Spec.NodeSelector,
		Tolerations: pod.Spec.Tolerations,
		Ports:       hostPorts(pod),
	}
	s.Requests, stable = requests(pod)
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			s.Spread = append(s.Spread, c)
		}
	}
	if a := pod.Spec.Affinity; a != nil {
		if a.NodeAffinity != nil {
			s.Affinity = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		}
		near, apart := true, true
		if a.PodAffinity != nil {
			s.PodAffinity, near = b.terms(pod, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
		}
		if a.PodAntiAffinity != nil {
			s.PodAnti, apart = b.terms(pod, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
		}
		stable = stable && near && apart
	}
	if pod.Spec.NodeName == "" && hasClaims(pod) { // volumes of a pod that has its node constrain nothing any more
		s.Volumes, stable = b.reach(pod), false
	}
	s.Labels = s.classLabels(pod.Labels)
	return s, stable
}

// requests are what the scheduler counts for the pod. While a running pod is being resized that is the larger of what
// it asks for and what it has, which its kubelet reports; stable is false then.
func requests(pod *corev1.Pod) (list corev1.ResourceList, stable bool) {
	list = resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	if pod.Spec.NodeName == "" {
		return list, true
	}
	actual := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true})
	return actual, equality.Semantic.DeepEqual(list, actual)
}

// classLabels are the labels without those that are the pod's own, unless its own terms look at them.
func (s signature) classLabels(pod map[string]string) map[string]string {
	out := make(map[string]string, len(pod))
	for k, v := range pod {
		if !perPod(k) || s.mentions(k) {
			out[k] = v
		}
	}
	return out
}

func (s signature) mentions(label string) bool {
	selects := func(sel *metav1.LabelSelector) bool {
		if sel == nil {
			return false
		}
		_, ok := sel.MatchLabels[label]
		return ok || slices.ContainsFunc(sel.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool { return e.Key == label })
	}
	for _, c := range s.Spread {
		if selects(c.LabelSelector) || slices.Contains(c.MatchLabelKeys, label) {
			return true
		}
	}
	return slices.ContainsFunc(slices.Concat(s.PodAffinity, s.PodAnti), func(t term) bool { return selects(t.Selector) })
}

// terms resolves the namespaces of inter-pod terms. fixed is false if they depend on the labels of namespaces.
func (b *Builder) terms(pod *corev1.Pod, in []corev1.PodAffinityTerm) (out []term, fixed bool) {
	fixed = true
	for _, t := range in {
		spaces := sets.New(t.Namespaces...)
		if t.NamespaceSelector != nil {
			fixed = false
			if sel, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector); err == nil {
				spaces.Insert(b.namespaces(sel)...)
			}
		} else if len(t.Namespaces) == 0 {
			spaces.Insert(pod.Namespace)
		}
		out = append(out, term{Key: t.TopologyKey, Selector: t.LabelSelector, Namespaces: sets.List(spaces)})
	}
	return out, fixed
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
func (s signature) class(id string) *capacity.Class {
	c := &capacity.Class{
		ID:          id,
		Namespace:   s.Namespace,
		Labels:      labels.Set(s.Labels),
		Requests:    capacity.FromList(s.Requests),
		Tolerations: s.Tolerations,
		HostPorts:   s.Ports,
	}
	c.Requests.Pods = 1
	s.alternatives(c)
	for _, sp := range s.Spread {
		c.Spread = append(c.Spread, s.spread(sp))
	}
	c.Affinity = together(s.PodAffinity)
	for _, t := range s.PodAnti {
		c.AntiAffinity = append(c.AntiAffinity, t.class())
	}
	return c
}

// alternatives sets the terms: node selector ∧ one node affinity term ∧ one way to reach the volumes.
func (s signature) alternatives(c *capacity.Class) {
	base := capacity.FromLabels(s.Selector)
	nodes := []capacity.Requirements{base}
	if s.Affinity != nil {
		nodes = nil
		named := 0
		for _, t := range s.Affinity.NodeSelectorTerms {
			if len(t.MatchExpressions) == 0 && len(t.MatchFields) == 0 {
				continue // an empty term matches no node
			}
			reqs, err := nodeTerm(t)
			if err != nil {
				continue
			}
			names := nodeNames(t.MatchFields)
			switch {
			case names != nil && len(names) == 0:
				continue // two different names: no node
			case names == nil && named > 0: // the names are the class's, not a term's: prefer terms that leave the node open
				nodes, named, c.NodeNames = nil, 0, nil
			case names != nil && (len(nodes) > named || (named > 0 && !names.Equal(c.NodeNames))):
				continue
			case names != nil:
				c.NodeNames = names
				named++
			}
			nodes = append(nodes, base.And(reqs))
		}
	}
	for _, a := range nodes {
		if s.Volumes == nil {
			c.Terms = append(c.Terms, a)
			continue
		}
		for _, v := range s.Volumes {
			if reqs, err := capacity.FromSelectors(v); err == nil {
				c.Terms = append(c.Terms, a.And(reqs))
			}
		}
	}
	if len(c.Terms) == 0 { // a requirement without a value says that no node will do, and its key why
		field := "spec.affinity.nodeAffinity"
		if len(nodes) > 0 {
			field = "spec.volumes"
		}
		c.Terms = []capacity.Requirements{capacity.NewRequirements(capacity.In(field))}
	}
}

// nodeTerm reads a node affinity term. What the scheduler cannot read (a value that no label can have, for instance a
// negative bound) is an error here, too.
func nodeTerm(t corev1.NodeSelectorTerm) (capacity.Requirements, error) {
	if _, err := nodeaffinity.NewNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{t}}); err != nil {
		return nil, err
	}
	return capacity.FromSelectors(t.MatchExpressions)
}

// nodeNames are the names that matchFields on metadata.name allow, nil if they restrict nothing. NotIn excludes single
// nodes that exist, which is left to the scheduler.
func nodeNames(fields []corev1.NodeSelectorRequirement) sets.Set[string] {
	var out sets.Set[string]
	for _, f := range fields {
		switch {
		case f.Key != metav1.ObjectNameField || f.Operator != corev1.NodeSelectorOpIn:
		case out == nil:
			out = sets.New(f.Values...)
		default:
			out = out.Intersection(sets.New(f.Values...))
		}
	}
	return out
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
