// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

func budgetRules() []Rule {
	only := []Kind{Budget}
	return []Rule{
		{
			ID: "B001", Title: "budget that can never allow a disruption", Mode: v1alpha1.Warn, Engines: []Engine{VAP}, Kinds: only, Needs: Nothing,
			Why:     "maxUnavailable 0 or minAvailable 100% forbids every eviction: nodes with such pods are never consolidated, and drained by force or not at all.",
			Example: `slipway B001: spec.maxUnavailable: 0 never allows an eviction. Allow at least one pod to be away.`,
			Fix:     "Allow at least one pod to be away.",
			Check:   neverAllows,
		},
		{
			ID: "B002", Title: "budget that allows nothing at the workload's size", Mode: v1alpha1.Warn, Engines: []Engine{Webhook}, Kinds: only, Needs: Cluster,
			Why:     "The controller rounds minAvailable percentages up: 90% of 5 pods are 5, which allows none. An autoscaler at its minimum makes it worse.",
			Example: `slipway B002: spec.minAvailable: 90% of 5 pods of deployment "web" is 5, which allows no eviction. Lower it, or run more replicas.`,
			Fix:     "Lower it, or run more replicas.",
			Check:   allowsNothing,
		},
		{
			ID: "B003", Title: "two budgets for the same pods", Mode: v1alpha1.Warn, Engines: []Engine{Webhook}, Kinds: only, Needs: Cluster,
			Why:     "The Eviction API refuses pods that more than one budget selects. Such a pod can only be deleted.",
			Example: `slipway B003: spec.selector: selects pods of deployment "web", as budget "web-old" does; evictions of them fail. Delete one of the two.`,
			Fix:     "Delete one of the two.",
			Check:   overlapping,
		},
		{
			ID: "B004", Title: "budget that selects nothing, or everything", Mode: v1alpha1.Warn, Engines: []Engine{Webhook}, Kinds: only, Needs: Cluster,
			Why:     "A budget without pods protects nobody, and one with an empty selector counts all pods of the namespace as one workload.",
			Example: `slipway B004: spec.selector: matches no workload of the namespace. Compare it with the labels of the pod template.`,
			Fix:     "Compare it with the labels of the pod template.",
			Check:   selectsOddly,
		},
		{
			ID: "B005", Title: "unhealthy pods block drains", Mode: v1alpha1.Off, Engines: []Engine{VAP}, Kinds: only, Needs: Nothing,
			Why:     "Without unhealthyPodEvictionPolicy AlwaysAllow a pod that never gets ready can keep its node from being drained.",
			Example: `slipway B005: spec.unhealthyPodEvictionPolicy: is not AlwaysAllow. Set it to AlwaysAllow.`,
			Fix:     "Set it to AlwaysAllow.",
			Check:   unhealthyBlock,
		},
	}
}

// Allowed is how many of n pods a budget lets be away at a time, all being healthy, with the field that decides. It is the
// disruption controller's arithmetic: percentages are rounded up, of minAvailable and of maxUnavailable alike.
func Allowed(b *policyv1.PodDisruptionBudget, n int) (away int, field string, ok bool) {
	switch {
	case b.Spec.MaxUnavailable != nil:
		v, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MaxUnavailable, n, true)
		return max(0, min(v, n)), "spec.maxUnavailable", err == nil
	case b.Spec.MinAvailable != nil:
		v, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MinAvailable, n, true)
		return max(0, n-v), "spec.minAvailable", err == nil
	}
	return max(0, n-1), "spec.minAvailable", true // neither: minAvailable 1
}

func neverAllows(s *Subject, _ *Facts) []Finding {
	spec := s.Budget.Spec
	if m := spec.MaxUnavailable; m != nil && (m.String() == "0" || isPercent(*m, 0)) {
		return []Finding{{Field: "spec.maxUnavailable", Problem: m.String() + " never allows an eviction"}}
	}
	if m := spec.MinAvailable; m != nil && isPercent(*m, 100) {
		return []Finding{{Field: "spec.minAvailable", Problem: m.String() + " never allows an eviction"}}
	}
	return nil
}

func isPercent(v intstr.IntOrString, n int) bool {
	return v.Type == intstr.String && strings.TrimSpace(v.StrVal) == fmt.Sprintf("%d%%", n)
}

// selector is what the budget selects; ok is false if it selects nothing by itself (no selector) or cannot be read.
func selector(b *policyv1.PodDisruptionBudget) (sel labels.Selector, ok bool) {
	if b.Spec.Selector == nil {
		return labels.Nothing(), false
	}
	sel, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	return sel, err == nil
}

func allowsNothing(s *Subject, f *Facts) []Finding {
	if f.Workloads == nil || len(neverAllows(s, f)) > 0 {
		return nil
	}
	sel, ok := selector(s.Budget)
	if !ok || sel.Empty() {
		return nil
	}
	var out []Finding
	for _, w := range f.Workloads(s.Meta.Namespace) {
		if !sel.Matches(labels.Set(w.Labels)) {
			continue
		}
		if x, bad := tight(s.Budget, &w); bad {
			out = append(out, x)
		}
	}
	return out
}

// tight reports a budget that allows nothing at the workload's replicas, or at the least its autoscaler goes down to.
func tight(b *policyv1.PodDisruptionBudget, w *Workload) (Finding, bool) {
	if w.Replicas <= 0 && w.Least <= 0 {
		return Finding{}, false
	}
	n, at := int(w.Replicas), ""
	if away, _, ok := Allowed(b, n); n > 0 && ok && away > 0 {
		n, at = int(w.Least), fmt.Sprintf(", the minimum of autoscaler %q,", w.Scaler)
	}
	away, field, ok := Allowed(b, n)
	if !ok || away > 0 || n <= 0 {
		return Finding{}, false
	}
	value := "1"
	if m := b.Spec.MinAvailable; m != nil {
		value = m.String()
	}
	return Finding{Field: field, Problem: fmt.Sprintf("%s of %s of %s %q%s is %d, which allows no eviction",
		value, plural(n, "pod"), strings.ToLower(w.Kind), w.Name, at, n-away)}, true
}

func overlapping(s *Subject, f *Facts) []Finding {
	if f.Budgets == nil || f.Workloads == nil {
		return nil
	}
	sel, ok := selector(s.Budget)
	if !ok {
		return nil
	}
	for _, other := range f.Budgets(s.Meta.Namespace) {
		theirs, ok := selector(other)
		if !ok || other.Name == s.Meta.Name {
			continue
		}
		for _, w := range f.Workloads(s.Meta.Namespace) {
			if sel.Matches(labels.Set(w.Labels)) && theirs.Matches(labels.Set(w.Labels)) {
				return []Finding{{Field: "spec.selector", Problem: fmt.Sprintf("selects pods of %s %q, as budget %q does; evictions of them fail",
					strings.ToLower(w.Kind), w.Name, other.Name)}}
			}
		}
	}
	return nil
}

func selectsOddly(s *Subject, f *Facts) []Finding {
	sel, ok := selector(s.Budget)
	if ok && sel.Empty() {
		return []Finding{{Field: "spec.selector", Problem: "is empty and selects every pod of the namespace", Fix: "Select one workload's pods."}}
	}
	if f.Workloads == nil {
		return nil
	}
	for _, w := range f.Workloads(s.Meta.Namespace) {
		if sel.Matches(labels.Set(w.Labels)) {
			return nil
		}
	}
	return []Finding{{Field: "spec.selector", Problem: "matches no workload of the namespace"}}
}

func unhealthyBlock(s *Subject, _ *Facts) []Finding {
	if p := s.Budget.Spec.UnhealthyPodEvictionPolicy; p == nil || *p != policyv1.AlwaysAllow {
		return []Finding{{Field: "spec.unhealthyPodEvictionPolicy", Problem: "is not AlwaysAllow"}}
	}
	return nil
}
