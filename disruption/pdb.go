// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// limits are the PodDisruptionBudgets, by namespace.
type limits map[string][]limit

type limit struct {
	name     string
	selector labels.Selector
	allowed  int32
	// unhealthy says that pods that are not ready may be evicted whatever is allowed.
	unhealthy bool
}

// newLimits reads the budgets. One whose selector cannot be read selects nothing, as to the eviction API.
func newLimits(pdbs []*policyv1.PodDisruptionBudget) limits {
	out := limits{}
	for _, b := range pdbs {
		sel, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			continue
		}
		out[b.Namespace] = append(out[b.Namespace], limit{
			name: b.Name, selector: sel, allowed: b.Status.DisruptionsAllowed,
			unhealthy: b.Spec.UnhealthyPodEvictionPolicy != nil && *b.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow,
		})
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b limit) int { return strings.Compare(a.name, b.name) })
	}
	return out
}

// blocks says which budget keeps the pod where it is, empty if none does. A pod of two budgets cannot be evicted at all.
func (l limits) blocks(p *corev1.Pod, now time.Time) string {
	list := l[p.Namespace]
	if len(list) == 0 || !evictable(p, now) {
		return ""
	}
	var of []limit
	for _, b := range list {
		if b.selector.Matches(labels.Set(p.Labels)) {
			of = append(of, b)
		}
	}
	switch {
	case len(of) > 1:
		return fmt.Sprintf("Eviction does not support multiple PDBs (Pod=%s, PodDisruptionBudget(s)=[%s/%s %s/%s])",
			client.ObjectKeyFromObject(p), p.Namespace, of[0].name, p.Namespace, of[1].name)
	case len(of) == 1 && of[0].allowed == 0 && (!of[0].unhealthy || !unready(p)):
		return fmt.Sprintf("Pdb prevents pod evictions (Pod=%s, PodDisruptionBudget=[%s/%s])", client.ObjectKeyFromObject(p), p.Namespace, of[0].name)
	}
	return ""
}

func unready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse
	})
}
