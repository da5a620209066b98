// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
)

// Tolerates returns the first NoSchedule or NoExecute taint that no toleration matches; ok is true if there is none.
func Tolerates(tolerations []corev1.Toleration, taints []corev1.Taint) (corev1.Taint, bool) {
	for _, t := range taints {
		if t.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if !anyTolerates(tolerations, t) {
			return t, false
		}
	}
	return corev1.Taint{}, true
}

func anyTolerates(tolerations []corev1.Toleration, t corev1.Taint) bool {
	for i := range tolerations {
		if tolerationMatches(&tolerations[i], t) {
			return true
		}
	}
	return false
}

// tolerationMatches is corev1.Toleration.ToleratesTaint with the comparison operators Lt and Gt enabled, which
// Kubernetes compares as integers (plugin TaintToleration, gate TaintTolerationComparisonOperators). While the gate is off
// the API server lets no such toleration in.
func tolerationMatches(tol *corev1.Toleration, t corev1.Taint) bool {
	if tol.Effect != "" && tol.Effect != t.Effect {
		return false
	}
	if tol.Key != "" && tol.Key != t.Key {
		return false
	}
	switch tol.Operator {
	case "", corev1.TolerationOpEqual:
		return tol.Value == t.Value
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		want, ok1 := decimal(tol.Value)
		have, ok2 := decimal(t.Value)
		if !ok1 || !ok2 {
			return false
		}
		if tol.Operator == corev1.TolerationOpLt {
			return have < want
		}
		return have > want
	default:
		return false
	}
}

// decimal parses an integer in its one canonical spelling: the scheduler takes neither "+5" nor "007".
func decimal(s string) (int64, bool) {
	if len(content.IsDecimalInteger(s)) > 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
