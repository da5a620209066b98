// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// budgets foretells what the eviction API will say, by its own rules (k8s.io/kubernetes, pkg/registry/core/pod/storage/eviction.go), so
// that evictions that cannot succeed are not sent. The API server has the last word.
type budgets struct {
	byNamespace map[string][]*budget
}

// budget is a PodDisruptionBudget and what evictions of this plan leave of it.
type budget struct {
	*policyv1.PodDisruptionBudget
	selector labels.Selector
	left     int32
}

func newBudgets(all []*policyv1.PodDisruptionBudget) budgets {
	b := budgets{byNamespace: map[string][]*budget{}}
	for _, p := range all {
		selector, err := metav1.LabelSelectorAsSelector(p.Spec.Selector)
		if err != nil {
			continue // the API server cannot apply it either
		}
		b.byNamespace[p.Namespace] = append(b.byNamespace[p.Namespace], &budget{PodDisruptionBudget: p, selector: selector, left: p.Status.DisruptionsAllowed})
	}
	return b
}

// of returns the budgets that cover the pod. A pod that has not started, or has ended, is covered by none.
func (b budgets) of(p *corev1.Pod) []*budget {
	if p.Status.Phase == corev1.PodPending || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	var out []*budget
	for _, one := range b.byNamespace[p.Namespace] {
		if one.selector.Matches(labels.Set(p.Labels)) {
			out = append(out, one)
		}
	}
	return out
}

// verdict is what budgets say about an eviction.
type verdict struct {
	blocker Blocker
	why     string
	// tight says that one more ready pod of the same kind would let this one go.
	tight bool
}

// ask takes the pod's eviction off its budget, or says why that allows none.
func (b budgets) ask(p *corev1.Pod) verdict {
	covering := b.of(p)
	switch len(covering) {
	case 0:
		return verdict{}
	case 1:
		return covering[0].ask(p)
	}
	names := make([]string, len(covering))
	for i, one := range covering {
		names[i] = fmt.Sprintf("%q", one.Name)
	}
	return verdict{blocker: MultipleBudgets, why: fmt.Sprintf(
		"it matches PodDisruptionBudgets %s, and the eviction API evicts no pod that matches more than one: leave it in one of them", strings.Join(names, " and "))}
}

func (b *budget) ask(p *corev1.Pod) verdict {
	s := b.Status
	if !ready(p) {
		policy := policyv1.IfHealthyBudget
		if b.Spec.UnhealthyPodEvictionPolicy != nil {
			policy = *b.Spec.UnhealthyPodEvictionPolicy
		}
		if policy == policyv1.AlwaysAllow || (s.CurrentHealthy >= s.DesiredHealthy && s.DesiredHealthy > 0) {
			return verdict{}
		}
	}
	var v verdict
	switch {
	case s.ObservedGeneration < b.Generation:
		v.blocker, v.why = Budget, fmt.Sprintf("PodDisruptionBudget %q was changed a moment ago and is not counted yet", b.Name)
	case s.DisruptionsAllowed <= 0:
		v.blocker, v.tight = Budget, b.tight()
		v.why = fmt.Sprintf("PodDisruptionBudget %q allows no disruption: %d pods are healthy and %d have to be", b.Name, s.CurrentHealthy, s.DesiredHealthy)
	case b.left <= 0:
		v.blocker, v.why = Budget, fmt.Sprintf("PodDisruptionBudget %q allows %d disruptions at a time", b.Name, s.DisruptionsAllowed)
	default:
		b.left--
	}
	return v
}

// tight reports whether one more healthy pod would let the budget allow a disruption. A budget that never allows any
// (maxUnavailable 0, minAvailable 100%) stays what it is.
func (b *budget) tight() bool {
	s := b.Status
	if b.Spec.MinAvailable == nil || s.CurrentHealthy < s.ExpectedPods {
		return false
	}
	desired, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MinAvailable, int(s.ExpectedPods)+1, true)
	return err == nil && int(s.CurrentHealthy)+1 > desired
}

// version tells states of the pod's budgets apart.
func (b budgets) version(p *corev1.Pod) string {
	var out strings.Builder
	for _, one := range b.of(p) {
		out.WriteString(one.ResourceVersion + ",")
	}
	return out.String()
}
