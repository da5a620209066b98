// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"
)

// headroom is how many more pods like this one the ResourceQuotas of its namespace admit. The quota controller and
// admission keep status.used; a quota without a status yet admits none.
func (o *Owners) headroom(pod *corev1.Pod) int {
	quotas, err := o.Quotas.ResourceQuotas(pod.Namespace).List(labels.Everything())
	if err != nil {
		return math.MaxInt
	}
	n := math.MaxInt
	for _, q := range quotas {
		if scoped(q, pod) {
			n = min(n, admits(q, pod))
		}
	}
	return n
}

// admits is how many more pods the quota has room for.
func admits(q *corev1.ResourceQuota, pod *corev1.Pod) int {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	n := math.MaxInt
	for name, hard := range q.Spec.Hard {
		need := charge(name, requests, limits)
		if need.Sign() <= 0 {
			continue
		}
		used, ok := q.Status.Used[name]
		if !ok {
			return 0
		}
		left := hard.DeepCopy()
		left.Sub(used)
		n = min(n, max(int(left.AsApproximateFloat64()/need.AsApproximateFloat64()), 0))
	}
	return n
}

// charge is what one pod counts against a quota on the resource (documentation of ResourceQuota, "compute resource quota"
// and "object count quota"); zero for a quota that counts something else.
func charge(name corev1.ResourceName, requests, limits corev1.ResourceList) resource.Quantity {
	s := string(name)
	switch {
	case name == corev1.ResourcePods || s == "count/pods":
		return *resource.NewQuantity(1, resource.DecimalSI)
	case strings.HasPrefix(s, "limits."):
		return limits[corev1.ResourceName(strings.TrimPrefix(s, "limits."))]
	default:
		return requests[corev1.ResourceName(strings.TrimPrefix(s, "requests."))]
	}
}

// scoped reports whether the quota counts the pod. A scope that is not known here counts it: look-ahead rather sees too
// little than too much.
func scoped(q *corev1.ResourceQuota, pod *corev1.Pod) bool {
	terms := slices.Clone(scopeTerms(q))
	for _, s := range q.Spec.Scopes {
		terms = append(terms, corev1.ScopedResourceSelectorRequirement{ScopeName: s, Operator: corev1.ScopeSelectorOpExists})
	}
	return !slices.ContainsFunc(terms, func(t corev1.ScopedResourceSelectorRequirement) bool { return !inScope(t, pod) })
}

func scopeTerms(q *corev1.ResourceQuota) []corev1.ScopedResourceSelectorRequirement {
	if q.Spec.ScopeSelector == nil {
		return nil
	}
	return q.Spec.ScopeSelector.MatchExpressions
}

func inScope(t corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) bool {
	switch t.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return pod.Spec.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return pod.Spec.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopePriorityClass:
		switch has := slices.Contains(t.Values, pod.Spec.PriorityClassName); t.Operator {
		case corev1.ScopeSelectorOpIn:
			return has
		case corev1.ScopeSelectorOpNotIn:
			return !has
		case corev1.ScopeSelectorOpExists:
			return pod.Spec.PriorityClassName != ""
		case corev1.ScopeSelectorOpDoesNotExist:
			return pod.Spec.PriorityClassName == ""
		}
	}
	return true
}
