// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// tolerates returns the first NoSchedule or NoExecute taint that no toleration matches; ok is true if there is none.
func tolerates(tolerations []corev1.Toleration, taints []corev1.Taint) (corev1.Taint, bool) {
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
// Kubernetes 1.37 compares as integers (scheduler plugin TaintToleration).
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
		want, err1 := strconv.ParseInt(tol.Value, 10, 64)
		have, err2 := strconv.ParseInt(t.Value, 10, 64)
		if err1 != nil || err2 != nil {
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
