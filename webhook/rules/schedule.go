// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/provisioner/capacity"
)

func scheduleRules() []Rule {
	return []Rule{
		{
			ID: "S001", Title: "pod of a managed namespace on the default scheduler", Mode: v1alpha1.Default, Engines: []Engine{MAP}, Kinds: []Kind{Pod}, Needs: Nothing,
			Why:     "Slipway buys nodes for the pods it schedules. A MutatingAdmissionPolicy sets schedulerName, so it works without Slipway's own pods; the webhook does it on clusters before 1.36. Any other name is the user's choice, and label slipway.sh/scheduler=default opts a pod out.",
			Example: `(changes the pod; no message)`,
			Fix:     "Label the pod slipway.sh/scheduler=default to keep it on the default scheduler.",
		},
		{
			ID: "S002", Title: "managed pod that ended on another scheduler", Mode: v1alpha1.Audit, Engines: []Engine{VAP}, Kinds: []Kind{Pod}, Needs: Nothing,
			Why:     "It gets no node bought. Counted to find out where injection does not reach.",
			Example: `slipway S002: spec.schedulerName: is "default-scheduler" in a namespace managed by Slipway. Set schedulerName, or label the pod slipway.sh/scheduler=default.`,
			Fix:     "Set schedulerName, or label the pod slipway.sh/scheduler=default.",
			Check:   otherScheduler,
		},
		{
			ID: "S003", Title: "unknown latency class", Mode: v1alpha1.Enforce, Engines: []Engine{VAP}, Kinds: podsAndWorkloads(), Needs: Nothing,
			Why:     "A class that the policy does not have gives the pod nothing; a typing error would go unnoticed.",
			Example: `slipway S003: metadata.annotations[slipway.sh/latency-class]: "interactiv" is not one of batch, interactive. Use "interactive".`,
			Fix:     "Use one of the policy's latency classes.",
			Check:   unknownClass,
		},
		{
			ID: "S004", Title: "placement of the policy", Mode: v1alpha1.Off, Engines: []Engine{Webhook}, Kinds: []Kind{Pod}, Needs: Nothing,
			Why:     "Adds the policy's node selector and tolerations to pods that say nothing on those keys; a pod's own value always stays.",
			Example: `slipway S004: spec.nodeSelector[kubernetes.io/arch]: is "arm64", the policy would set "amd64". Nothing to do if that is meant.`,
			Fix:     "Nothing to do if that is meant.",
			Check:   placementDiffers,
		},
		{
			ID: "S005", Title: "no NodePool can ever run the pod", Mode: v1alpha1.Warn, Engines: []Engine{Webhook}, Kinds: podsAndWorkloads(), Needs: Catalog,
			Why:     "The pod would stay pending for ever. The planner itself says so, with the pool that comes nearest and the one thing that blocks there. Price, spot availability and used-up limits are not looked at; volumes and rules about other pods make the answer \"not known\", which is silent.",
			Example: `slipway S005: no NodePool fits. Closest "general": memory 410Gi wanted, 371Gi is the largest. Lower the request or allow larger types.`,
			Fix:     "Change the pod or the pool.",
			Check:   infeasible,
		},
		{
			ID: "S006", Title: "unknown node label or value", Mode: v1alpha1.Warn, Engines: []Engine{Webhook}, Kinds: podsAndWorkloads(), Needs: Catalog,
			Why:     "A selector for a label that no node, pool or instance type has matches nothing, most often because of a typing error.",
			Example: `slipway S006: spec.nodeSelector[karpenter.sh/capacity-type]: no node can have the value "on_demand". Did you mean "on-demand"?`,
			Fix:     "Compare with the labels of nodes and NodePools.",
			Check:   unknownLabels,
		},
		{
			ID: "S007", Title: "nodeName set by hand", Mode: v1alpha1.Warn, Engines: []Engine{VAP}, Kinds: podsAndWorkloads(), Needs: Nothing,
			Why:     "A pod with nodeName passes no scheduler: no filter is asked, no node is bought, and on a full node it fails.",
			Example: `slipway S007: spec.nodeName: is set, so no scheduler sees the pod. Use a node selector.`,
			Fix:     "Use a node selector.",
			Check:   namesNode,
		},
		{
			ID: "S008", Title: "more zones needed than any pool has", Mode: v1alpha1.Warn, Engines: []Engine{Webhook}, Kinds: workloads(), Needs: Catalog,
			Why:     "Hard zone anti-affinity needs a zone a replica, minDomains as many zones as it says. The replicas beyond that stay pending.",
			Example: `slipway S008: spec.template.spec.affinity.podAntiAffinity: 6 replicas need 6 zones, the pool with most has 3. Spread by topologySpreadConstraints with maxSkew 1.`,
			Fix:     "Spread by topologySpreadConstraints with maxSkew 1.",
			Check:   tooManyZones,
		},
		{
			ID: "S009", Title: "tolerates the disruption taint", Mode: v1alpha1.Warn, Engines: []Engine{VAP}, Kinds: podsAndWorkloads(), Needs: Nothing,
			Why:     "Pods that tolerate karpenter.sh/disrupted are not evicted when their node is drained: they die with it.",
			Example: `slipway S009: spec.tolerations: tolerates karpenter.sh/disrupted, so draining a node does not move the pod. Name the keys that are to be tolerated.`,
			Fix:     "Name the keys that are to be tolerated.",
			Check:   toleratesDisruption,
		},
	}
}

// defaultScheduler is what the API server fills in before admission; unset and explicit look alike.
const defaultScheduler = corev1.DefaultSchedulerName

// Scheduled reports whether the pod would be given to Slipway's scheduler: it is on the default one, is not a DaemonSet's
// or a static pod, and is not labelled out. The MutatingAdmissionPolicy has the same conditions.
func Scheduled(s *Subject) bool {
	name := s.Template.Spec.SchedulerName
	return s.Kind == Pod && (name == "" || name == defaultScheduler) && s.Template.Spec.NodeName == "" &&
		!s.OfDaemonSet() && !s.Static() && s.Meta.Labels[v1alpha1.SchedulerLabel] != "default"
}

func otherScheduler(s *Subject, f *Facts) []Finding {
	name := s.Template.Spec.SchedulerName
	if s.Operation != Create || s.OfDaemonSet() || s.Static() || name == f.Policy.SchedulerName || s.Meta.Labels[v1alpha1.SchedulerLabel] == "default" {
		return nil
	}
	if name == "" {
		name = defaultScheduler
	}
	return []Finding{{Field: s.Path + "spec.schedulerName", Problem: fmt.Sprintf("is %q in a namespace managed by Slipway", name)}}
}

func unknownClass(s *Subject, f *Facts) []Finding {
	v, ok := s.Template.Annotations[v1alpha1.LatencyClassAnnotation]
	if !ok || len(f.Policy.LatencyClasses) == 0 {
		return nil
	}
	var names []string
	for _, c := range f.Policy.LatencyClasses {
		if c.Name == v {
			return nil
		}
		names = append(names, c.Name)
	}
	sort.Strings(names)
	x := Finding{
		Field:   fmt.Sprintf("%smetadata.annotations[%s]", s.Path, v1alpha1.LatencyClassAnnotation),
		Problem: fmt.Sprintf("%q is not one of %s", v, listed(names)), Mild: s.Kind == Pod && !s.Bare(),
	}
	if near := closest(v, names); near != "" {
		x.Fix = fmt.Sprintf("Use %q.", near)
	}
	return []Finding{x}
}

func placementDiffers(s *Subject, f *Facts) []Finding {
	if f.Policy.Placement == nil {
		return nil
	}
	var out []Finding
	for _, key := range slices.Sorted(maps.Keys(f.Policy.Placement.NodeSelector)) {
		want := f.Policy.Placement.NodeSelector[key]
		if have, ok := s.Template.Spec.NodeSelector[key]; ok && have != want {
			out = append(out, Finding{Field: fmt.Sprintf("spec.nodeSelector[%s]", key), Problem: fmt.Sprintf("is %q, the policy would set %q", have, want)})
		}
	}
	return out
}

func infeasible(s *Subject, f *Facts) []Finding {
	if f.Feasible == nil || s.OfDaemonSet() || s.Operation == Resize {
		return nil
	}
	v := f.Feasible(s.Meta.Namespace, s.Template)
	if v.Answer != No {
		return nil
	}
	problem := "no NodePool fits. Closest " + fmt.Sprintf("%q: %s", v.Nearest, v.Reason)
	if v.Nearest == "" {
		problem = "no NodePool fits: " + v.Reason
	}
	return []Finding{{Problem: problem}}
}

func unknownLabels(s *Subject, f *Facts) []Finding {
	if f.Vocabulary == nil {
		return nil
	}
	words := f.Vocabulary()
	if len(words) == 0 {
		return nil
	}
	var out []Finding
	for _, key := range slices.Sorted(maps.Keys(s.Template.Spec.NodeSelector)) {
		field := fmt.Sprintf("%sspec.nodeSelector[%s]", s.Path, key)
		out = append(out, unknownWord(words, field, key, []string{s.Template.Spec.NodeSelector[key]})...)
	}
	a := s.Template.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return out
	}
	for i, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, e := range t.MatchExpressions {
			if e.Operator != corev1.NodeSelectorOpIn {
				continue
			}
			field := fmt.Sprintf("%sspec.affinity.nodeAffinity.required.nodeSelectorTerms[%d][%s]", s.Path, i, e.Key)
			out = append(out, unknownWord(words, field, e.Key, e.Values)...)
		}
	}
	return out
}

// unknownWord reports a key nobody has, or values of which nobody has one.
func unknownWord(words map[string][]string, field, key string, values []string) []Finding {
	known, ok := words[capacity.CanonicalKey(key)]
	if !ok {
		x := Finding{Field: field, Problem: "no node, NodePool or instance type has this label"}
		if near := closest(key, slices.Sorted(maps.Keys(words))); near != "" {
			x.Fix = fmt.Sprintf("Did you mean %q?", near)
		}
		return []Finding{x}
	}
	if len(known) == 0 { // any value is possible
		return nil
	}
	for _, v := range values {
		if slices.Contains(known, v) {
			return nil
		}
	}
	if len(values) == 0 {
		return nil
	}
	x := Finding{Field: field, Problem: fmt.Sprintf("no node can have the value %q", values[0])}
	if near := closest(values[0], known); near != "" {
		x.Fix = fmt.Sprintf("Did you mean %q?", near)
	}
	return []Finding{x}
}

func namesNode(s *Subject, _ *Facts) []Finding {
	if s.Template.Spec.NodeName == "" || s.OfDaemonSet() || s.Static() || s.Operation != Create {
		return nil
	}
	return []Finding{{Field: s.Path + "spec.nodeName", Problem: "is set, so no scheduler sees the pod"}}
}

func tooManyZones(s *Subject, f *Facts) []Finding {
	if f.Where == nil {
		return nil
	}
	spec := &s.Template.Spec
	need, field, why := 0, "", ""
	for _, c := range spec.TopologySpreadConstraints {
		if c.TopologyKey == corev1.LabelTopologyZone && c.WhenUnsatisfiable == corev1.DoNotSchedule && c.MinDomains != nil && int(*c.MinDomains) > need {
			need, field, why = int(*c.MinDomains), "spec.topologySpreadConstraints", fmt.Sprintf("minDomains %d needs %d zones", *c.MinDomains, *c.MinDomains)
		}
	}
	if s.Replicas != nil && int(*s.Replicas) > need && zoneExclusive(s) {
		need, field, why = int(*s.Replicas), "spec.affinity.podAntiAffinity", fmt.Sprintf("%d replicas need %d zones", *s.Replicas, *s.Replicas)
	}
	if need == 0 {
		return nil
	}
	zones := f.Where(s.Meta.Namespace, s.Template).Zones
	if zones == 0 || need <= zones {
		return nil
	}
	return []Finding{{Field: s.Path + field, Problem: fmt.Sprintf("%s, the pool with most has %d", why, zones)}}
}

// zoneExclusive reports whether no two of the pods may be in one zone.
func zoneExclusive(s *Subject) bool {
	a := s.Template.Spec.Affinity
	if a == nil || a.PodAntiAffinity == nil {
		return false
	}
	for _, t := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if t.TopologyKey == corev1.LabelTopologyZone && selectsItself(s, &t) {
			return true
		}
	}
	return false
}

func toleratesDisruption(s *Subject, _ *Facts) []Finding {
	if s.OfDaemonSet() || s.Static() {
		return nil // they are not evicted in any case
	}
	for _, t := range s.Template.Spec.Tolerations {
		if t.Effect != "" && t.Effect != corev1.TaintEffectNoSchedule {
			continue
		}
		if t.Key == karpv1.DisruptedTaintKey || (t.Key == "" && t.Operator == corev1.TolerationOpExists) {
			return []Finding{{Field: s.Path + "spec.tolerations", Problem: "tolerates karpenter.sh/disrupted, so draining a node does not move the pod"}}
		}
	}
	return nil
}
