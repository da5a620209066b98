// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcehelper "k8s.io/component-helpers/resource"

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

// signature is everything of a pod that decides where it may go.
type signature struct {
	Namespace string
	Labels    map[string]string
	Requests  capacity.Resources
	Selector  map[string]string
	Affinity  *corev1.NodeSelector
	Preferred []corev1.PreferredSchedulingTerm
	// Volumes are alternative node requirements that the pod's volumes add: nil for none, empty if no node will do.
	Volumes [][]corev1.NodeSelectorRequirement
	// Attach counts the volumes to be attached, by CSI driver.
	Attach      []capacity.Quantity
	Tolerations []corev1.Toleration
	Ports       []capacity.HostPort
	Spread      []corev1.TopologySpreadConstraint
	// Terms that have no weight are required.
	PodAffinity, PodAnti             []term
	PreferredAffinity, PreferredAnti []term
	Unsupported                      string
}

// term is an inter-pod term with its namespaces resolved.
type term struct {
	Key        string
	Selector   *metav1.LabelSelector
	Namespaces []string // sorted
	Weight     int32
}

// sign extracts the signature of the pod. It is not stable, that is, may differ the next time although the pod is the
// same, when it depends on namespaces or volumes, or on how far the resize of a running pod has come.
func (b *Builder) sign(pod *corev1.Pod) (s signature, stable bool) {
	s = signature{
		Namespace:   pod.Namespace,
		Selector:    pod.Spec.NodeSelector,
		Tolerations: pod.Spec.Tolerations,
		Ports:       hostPorts(pod),
		Spread:      pod.Spec.TopologySpreadConstraints,
	}
	s.Requests, stable = requests(pod)
	if pod.Spec.NodeName == "" {
		s.Unsupported = unsupported(pod)
	}
	if a := pod.Spec.Affinity; a != nil {
		// A daemonset pod names its node, which would make each a class of its own, and never goes to another.
		if a.NodeAffinity != nil && (pod.Spec.NodeName == "" || !ofDaemonSet(pod)) {
			s.Affinity = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			s.Preferred = a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
		}
		if !b.signTerms(&s, pod) {
			stable = false
		}
	}
	if pod.Spec.NodeName == "" && hasClaims(pod) { // volumes of a pod that has its node constrain nothing any more
		b.signVolumes(&s, pod)
		stable = false
	}
	s.Labels = s.classLabels(pod.Labels)
	return s, stable
}

// signTerms adds the inter-pod terms; fixed is false if they depend on the labels of namespaces.
func (b *Builder) signTerms(s *signature, pod *corev1.Pod) (fixed bool) {
	fixed = true
	add := func(to *[]term, weight int32, in ...corev1.PodAffinityTerm) {
		for i := range in {
			t, ok := b.term(pod, &in[i])
			t.Weight = weight
			*to = append(*to, t)
			fixed = fixed && ok
		}
	}
	if a := pod.Spec.Affinity.PodAffinity; a != nil {
		add(&s.PodAffinity, 0, a.RequiredDuringSchedulingIgnoredDuringExecution...)
		for _, w := range a.PreferredDuringSchedulingIgnoredDuringExecution {
			add(&s.PreferredAffinity, w.Weight, w.PodAffinityTerm)
		}
	}
	if a := pod.Spec.Affinity.PodAntiAffinity; a != nil {
		add(&s.PodAnti, 0, a.RequiredDuringSchedulingIgnoredDuringExecution...)
		for _, w := range a.PreferredDuringSchedulingIgnoredDuringExecution {
			add(&s.PreferredAnti, w.Weight, w.PodAffinityTerm)
		}
	}
	return fixed
}

// unsupported says why no node is bought for the pod, naming the field; empty if one can be.
func unsupported(pod *corev1.Pod) string {
	switch {
	case len(pod.Spec.ResourceClaims) > 0:
		return fmt.Sprintf("the pod asks for devices through resource claims (spec.resourceClaims, %q first), for which no node is bought", pod.Spec.ResourceClaims[0].Name)
	case len(pod.Spec.SchedulingGates) > 0:
		return fmt.Sprintf("the pod is held back by scheduling gate %q (spec.schedulingGates)", pod.Spec.SchedulingGates[0].Name)
	}
	return ""
}

func ofDaemonSet(pod *corev1.Pod) bool {
	o := metav1.GetControllerOf(pod)
	return o != nil && o.Kind == "DaemonSet"
}

// requests are what the scheduler counts for the pod. While a running pod is being resized that is the larger of what
// it asks for and what it has, which its kubelet reports; stable is false then.
func requests(pod *corev1.Pod) (r capacity.Resources, stable bool) {
	r = capacity.FromList(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
	if pod.Spec.NodeName == "" {
		return r, true
	}
	actual := capacity.FromList(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true}))
	return actual, r.Equal(actual)
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
	return slices.ContainsFunc(slices.Concat(s.PodAffinity, s.PodAnti, s.PreferredAffinity, s.PreferredAnti), func(t term) bool { return selects(t.Selector) })
}

// term resolves the namespaces and label keys of an inter-pod term. fixed is false if it depends on the labels of namespaces.
func (b *Builder) term(pod *corev1.Pod, t *corev1.PodAffinityTerm) (out term, fixed bool) {
	fixed = true
	spaces := sets.New(t.Namespaces...)
	if t.NamespaceSelector != nil {
		fixed = false
		if sel, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector); err == nil {
			spaces.Insert(b.namespaces(sel)...)
		}
	} else if len(t.Namespaces) == 0 {
		spaces.Insert(pod.Namespace)
	}
	return term{Key: t.TopologyKey, Selector: withLabelKeys(t, pod.Labels), Namespaces: sets.List(spaces)}, fixed
}

// withLabelKeys is the term's selector with matchLabelKeys and mismatchLabelKeys. The API server merges them when a pod is
// created and the scheduler does not look at them again; pods that are yet to be made of a template lack them.
func withLabelKeys(t *corev1.PodAffinityTerm, pod map[string]string) *metav1.LabelSelector {
	sel := t.LabelSelector
	if sel == nil || len(t.MatchLabelKeys)+len(t.MismatchLabelKeys) == 0 {
		return sel
	}
	out := &metav1.LabelSelector{MatchLabels: sel.MatchLabels, MatchExpressions: slices.Clone(sel.MatchExpressions)}
	add := func(keys []string, op metav1.LabelSelectorOperator) {
		for _, k := range keys {
			v, ok := pod[k]
			merged := slices.ContainsFunc(sel.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool { return e.Key == k && e.Operator == op })
			if ok && !merged {
				out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{Key: k, Operator: op, Values: []string{v}})
			}
		}
	}
	add(t.MatchLabelKeys, metav1.LabelSelectorOpIn)
	add(t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
	return out
}
