// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// absent reports whether an error says that the cluster does not have a kind.
func absent(err error) bool {
	return meta.IsNoMatchError(err) || discovery.IsGroupDiscoveryFailedError(err)
}

// CheckAutoscaler says what a move from Cluster Autoscaler needs first, and in which order its node groups are closed.
func CheckAutoscaler(s *GroupSite) *Report {
	groups := s.groups()
	on := map[string]*Group{}
	for i := range groups {
		for name := range groups[i].names {
			on[name] = &groups[i]
		}
	}
	selected := map[string][]string{}
	var unsafe []string
	for i := range s.Pods {
		p := &s.Pods[i]
		g := on[p.Spec.NodeName]
		if finished(p) || daemon(p) || g == nil {
			continue
		}
		stays := s.stays(p)
		var missing []string
		if !stays {
			missing = s.missing(p, g)
			for _, label := range missing {
				selected[label] = append(selected[label], p.Namespace+"/"+p.Name)
			}
			if p.Annotations[evictAnnotation] == "false" && p.Annotations[karpv1.DoNotDisruptAnnotationKey] != "true" {
				unsafe = append(unsafe, p.Namespace+"/"+p.Name)
			}
		}
		g.add(p, stays, missing)
	}
	order(groups)
	findings := slices.Concat(s.there(), s.poolsThere(), s.bothServe(), labels(selected), annotations(unsafe, s.Nodes), kept(groups))
	r := newReport(findings)
	r.Groups = groups
	return r
}

func (s *GroupSite) there() []Finding {
	if len(s.Autoscaler) == 0 {
		return []Finding{{Warns, "autoscaler", "no Deployment runs an image called cluster-autoscaler", "is this the right --context?"}}
	}
	var out []Finding
	for i := range s.Autoscaler {
		d := &s.Autoscaler[i]
		out = append(out, Finding{Tells, "autoscaler", fmt.Sprintf("Cluster Autoscaler is Deployment %s/%s with %s", d.Namespace, d.Name, count(int(replicas(d)), "replica", "replicas")), ""})
	}
	return out
}

func (s *GroupSite) poolsThere() []Finding {
	if len(s.Pools) > 0 {
		return nil
	}
	return []Finding{{
		Blocks, "pools", "there is no NodePool yet, so Slipway has nothing to buy from",
		"install Slipway and translate the groups: docs/migrating.md, \"From Cluster Autoscaler\"",
	}}
}

// bothServe says when both would buy for the same pods.
func (s *GroupSite) bothServe() []Finding {
	running := slices.ContainsFunc(s.Autoscaler, func(d appsv1.Deployment) bool { return replicas(&d) > 0 })
	served, _ := setting(s.Slipway, "SERVE_SCHEDULERS")
	if !running || !slices.Contains(strings.Split(served, ","), corev1.DefaultSchedulerName) {
		return nil
	}
	return []Finding{{
		Blocks, "schedulers", "Slipway serves default-scheduler while Cluster Autoscaler runs: both would buy for the same pods",
		"take --serve-schedulers out of scheduler.extraArgs until Cluster Autoscaler is at zero replicas",
	}}
}

// stays reports whether a pod belongs on a node group for good.
func (s *GroupSite) stays(p *corev1.Pod) bool {
	return p.Namespace == "kube-system" || p.Namespace == s.Names.Slipway || slices.ContainsFunc(s.Autoscaler, func(d appsv1.Deployment) bool {
		return d.Namespace == p.Namespace && d.Spec.Selector != nil && len(d.Spec.Selector.MatchLabels) > 0 &&
			contains(p.Labels, d.Spec.Selector.MatchLabels)
	})
}

func contains(have, want map[string]string) bool {
	for k, v := range want {
		if have[k] != v {
			return false
		}
	}
	return true
}

// missing are the labels, key=value, that the pod selects, its node group gives, and no NodePool does.
func (s *GroupSite) missing(p *corev1.Pod, g *Group) []string {
	want := map[string]bool{}
	note := func(key string, values []string) {
		if v, ok := g.labels[key]; ok && (len(values) == 0 || slices.Contains(values, v)) && !s.given(key, values, v) {
			want[key+"="+v] = true
		}
	}
	for key, value := range p.Spec.NodeSelector {
		note(key, []string{value})
	}
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, e := range term.MatchExpressions {
				if e.Operator == corev1.NodeSelectorOpIn || e.Operator == corev1.NodeSelectorOpExists {
					note(e.Key, e.Values)
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(want))
}

// given reports whether a NodePool's nodes can have the label with one of the values (any value if there are none).
func (s *GroupSite) given(key string, values []string, value string) bool {
	if len(values) == 0 {
		values = []string{value}
	}
	// Every node has these, from its instance.
	if karpv1.WellKnownLabels.Has(key) || key == corev1.LabelHostname {
		return true
	}
	for i := range s.Pools {
		t := &s.Pools[i].Spec.Template
		if v, ok := t.Labels[key]; ok && slices.Contains(values, v) {
			return true
		}
		for _, r := range t.Spec.Requirements {
			if r.Key != key {
				continue
			}
			switch r.Operator {
			case corev1.NodeSelectorOpIn:
				if slices.ContainsFunc(r.Values, func(v string) bool { return slices.Contains(values, v) }) {
					return true
				}
			case corev1.NodeSelectorOpExists:
				return true
			case corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			}
		}
	}
	return false
}

func labels(selected map[string][]string) []Finding {
	var out []Finding
	for _, label := range slices.Sorted(maps.Keys(selected)) {
		key, value, _ := strings.Cut(label, "=")
		do := fmt.Sprintf("add %s: %q to spec.template.metadata.labels of the NodePool that takes the group's place", key, value)
		if slices.Contains(groupLabels(), key) {
			do = "only node groups have this label: select another one that nodes of both have, e.g. of your own, before you move"
		}
		out = append(out, Finding{
			Blocks, "labels", fmt.Sprintf("%s %s, which no NodePool gives: %s", count(len(selected[label]), "pod selects", "pods select"), label, names(selected[label])), do,
		})
	}
	return out
}

func annotations(unsafe []string, nodes []corev1.Node) []Finding {
	var out []Finding
	if len(unsafe) > 0 {
		out = append(out, Finding{
			Warns, "annotations", fmt.Sprintf("%s %s: \"false\", which Slipway does not know: %s", count(len(unsafe), "pod has", "pods have"), evictAnnotation, names(unsafe)),
			fmt.Sprintf("add %s: \"true\" beside it in their templates", karpv1.DoNotDisruptAnnotationKey),
		})
	}
	var held []string
	for i := range nodes {
		if nodes[i].Annotations[scaleDownAnnotation] == "true" {
			held = append(held, nodes[i].Name)
		}
	}
	if len(held) > 0 {
		out = append(out, Finding{
			Warns, "annotations", fmt.Sprintf("%s %s: \"true\", so Cluster Autoscaler will not take them away when they are empty: %s", count(len(held), "node has", "nodes have"), scaleDownAnnotation, names(held)),
			"take the annotation off when their group's turn comes",
		})
	}
	return out
}

// kept says when no group would be left for Slipway itself.
func kept(groups []Group) []Finding {
	if len(groups) == 0 || slices.ContainsFunc(groups, func(g Group) bool { return g.Floor > 0 }) {
		return nil
	}
	return []Finding{{
		Blocks, "floor", "no node group would be kept, and Slipway does not run on nodes that it buys",
		"keep one group with two nodes for Slipway and the pods of kube-system",
	}}
}
