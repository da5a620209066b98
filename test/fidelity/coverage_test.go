// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package fidelity

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// coverage counts, by feature, the pods that want a place and have it.
type coverage map[string]int

// nodeFeatures, topologyFeatures and volumeFeatures are what the generators have to draw: a comparison that never sees a
// feature says nothing about it.
func nodeFeatures() []string {
	out := []string{
		"node selector", "node affinity, one term", "node affinity, several terms", "node affinity, empty term", "node affinity, name In",
		"toleration of everything", "toleration Equal", "toleration Exists", "toleration Lt", "toleration Gt",
		"host port", "host port of a sidecar", "host port on an address", "host port on 0.0.0.0", "host port UDP",
		"init container", "sidecar", "pod-level resources", "overhead", "extended resource", "ephemeral storage", "no requests",
		"taint NoSchedule", "taint NoExecute", "taint PreferNoSchedule", "taint not-ready", "cordoned",
	}
	for _, op := range []corev1.NodeSelectorOperator{corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt} {
		out = append(out, "requirement "+string(op))
	}
	return out
}

func topologyFeatures() []string {
	var out []string
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelHostname, "team"} {
		out = append(out, "spread over "+key, "affinity over "+key, "anti-affinity over "+key, "anti-affinity of others over "+key)
	}
	return append(out, "spread minDomains", "spread nodeAffinityPolicy Honor", "spread nodeAffinityPolicy Ignore", "spread nodeTaintsPolicy Honor", "spread nodeTaintsPolicy Ignore",
		"spread matchLabelKeys", "spread by an empty selector", "spread by no selector", "two spreads", "terminating pod",
		"affinity to itself", "affinity namespaces", "affinity namespaceSelector", "affinity all namespaces", "affinity matchLabelKeys", "affinity mismatchLabelKeys", "two affinity terms", "two anti-affinity terms")
}

func volumeFeatures() []string {
	out := []string{"claim that is not there", "several claims", "attach limit reached"}
	for _, k := range claimKinds() {
		out = append(out, "claim "+k.name)
	}
	return out
}

// add counts what the world has.
func (c coverage) add(w world) {
	seen := map[string]bool{}
	has := func(ok bool, feature string) {
		if ok {
			seen[feature] = true
		}
	}
	nodeRules(has, w.pod)
	requests(has, w.pod)
	spreads(has, w.pod)
	terms(has, w.pod)
	claims(has, w)
	for _, n := range w.nodes {
		has(n.Spec.Unschedulable, "cordoned")
		for _, t := range n.Spec.Taints {
			has(t.Key == corev1.TaintNodeNotReady, "taint not-ready")
			has(true, "taint "+string(t.Effect))
		}
	}
	for _, p := range w.bound {
		has(p.DeletionTimestamp != nil, "terminating pod")
		if a := p.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
			for _, t := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				has(true, "anti-affinity of others over "+t.TopologyKey)
			}
		}
	}
	for f := range seen {
		c[f]++
	}
}

func nodeRules(has func(bool, string), p *corev1.Pod) {
	has(len(p.Spec.NodeSelector) > 0, "node selector")
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		list := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		has(len(list) == 1, "node affinity, one term")
		has(len(list) > 1, "node affinity, several terms")
		for _, t := range list {
			has(len(t.MatchExpressions)+len(t.MatchFields) == 0, "node affinity, empty term")
			has(len(t.MatchFields) > 0, "node affinity, name In")
			for _, e := range t.MatchExpressions {
				has(true, "requirement "+string(e.Operator))
			}
		}
	}
	for _, t := range p.Spec.Tolerations {
		has(t.Key == "", "toleration of everything")
		has(true, "toleration "+string(t.Operator))
	}
	for i, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		for _, port := range c.Ports {
			has(true, "host port")
			has(i >= len(p.Spec.Containers) && c.RestartPolicy != nil, "host port of a sidecar")
			has(strings.HasPrefix(port.HostIP, "10."), "host port on an address")
			has(port.HostIP == "0.0.0.0", "host port on 0.0.0.0")
			has(port.Protocol == corev1.ProtocolUDP, "host port UDP")
		}
	}
}

func requests(has func(bool, string), p *corev1.Pod) {
	for _, c := range p.Spec.InitContainers {
		has(c.RestartPolicy == nil, "init container")
		has(c.RestartPolicy != nil, "sidecar")
	}
	main := p.Spec.Containers[0].Resources.Requests
	_, extended := main[gpu]
	_, ephemeral := main[corev1.ResourceEphemeralStorage]
	has(extended, "extended resource")
	has(ephemeral, "ephemeral storage")
	has(len(main) == 0, "no requests")
	has(p.Spec.Resources != nil, "pod-level resources")
	has(len(p.Spec.Overhead) > 0, "overhead")
}

func spreads(has func(bool, string), p *corev1.Pod) {
	has(len(p.Spec.TopologySpreadConstraints) > 1, "two spreads")
	for _, s := range p.Spec.TopologySpreadConstraints {
		has(true, "spread over "+s.TopologyKey)
		has(s.MinDomains != nil, "spread minDomains")
		has(len(s.MatchLabelKeys) > 0, "spread matchLabelKeys")
		has(s.LabelSelector == nil, "spread by no selector")
		has(s.LabelSelector != nil && len(s.LabelSelector.MatchLabels)+len(s.LabelSelector.MatchExpressions) == 0, "spread by an empty selector")
		if s.NodeAffinityPolicy != nil {
			has(true, "spread nodeAffinityPolicy "+string(*s.NodeAffinityPolicy))
		}
		if s.NodeTaintsPolicy != nil {
			has(true, "spread nodeTaintsPolicy "+string(*s.NodeTaintsPolicy))
		}
	}
}

func terms(has func(bool, string), p *corev1.Pod) {
	a := p.Spec.Affinity
	if a == nil {
		return
	}
	look := func(kind string, list []corev1.PodAffinityTerm) {
		has(len(list) > 1, "two "+kind+" terms")
		for _, t := range list {
			has(true, kind+" over "+t.TopologyKey)
			has(len(t.Namespaces) > 0, "affinity namespaces")
			has(t.NamespaceSelector != nil && len(t.NamespaceSelector.MatchLabels) > 0, "affinity namespaceSelector")
			has(t.NamespaceSelector != nil && len(t.NamespaceSelector.MatchLabels) == 0, "affinity all namespaces")
			has(len(t.MatchLabelKeys) > 0, "affinity matchLabelKeys")
			has(len(t.MismatchLabelKeys) > 0, "affinity mismatchLabelKeys")
			if sel, err := metav1.LabelSelectorAsSelector(t.LabelSelector); err == nil {
				has(kind == "affinity" && sel.Matches(labels.Set(p.Labels)), "affinity to itself")
			}
		}
	}
	if a.PodAffinity != nil {
		look("affinity", a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	if a.PodAntiAffinity != nil {
		look("anti-affinity", a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
}

func claims(has func(bool, string), w world) {
	has(len(w.pod.Spec.Volumes) > 1, "several claims")
	for _, v := range w.pod.Spec.Volumes {
		has(v.Name == "not-there", "claim that is not there")
		has(v.Name != "not-there", "claim "+v.Name)
	}
	for i, n := range w.nodes[:min(3, len(w.nodes))] {
		attached := 0
		for _, p := range on(w, n) {
			attached += len(p.Spec.Volumes)
		}
		has(len(w.pod.Spec.Volumes) > 0 && attached == i && i > 0, "attach limit reached")
	}
}

// check fails for features of the list that were never drawn, and prints how often the others were.
func (c coverage) check(t *testing.T, want []string) {
	t.Helper()
	var lines []string
	for _, f := range want {
		if c[f] == 0 {
			t.Errorf("feature %q was never drawn", f)
		}
	}
	for _, f := range slices.Sorted(maps.Keys(c)) {
		lines = append(lines, fmt.Sprintf("%9d  %s", c[f], f))
	}
	t.Logf("pods with each feature:\n%s", strings.Join(lines, "\n"))
}
