// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// stuckTerminating is how long after its grace period a pod that is being deleted is still waited for (Karpenter's
// IsStuckTerminating): its kubelet is gone, or a finalizer of somebody else's holds it.
const stuckTerminating = time.Minute

// hasToLeave reports whether the node waits for the pod: not for pods that have ended, belong to the node (mirror pods),
// tolerate the disrupted taint, or have outstayed their deletion.
func hasToLeave(p *corev1.Pod, now time.Time) bool {
	return drainable(p) && (p.DeletionTimestamp == nil || now.Sub(p.DeletionTimestamp.Time) <= stuckTerminating)
}

// drainable reports whether the pod is one that drains take off nodes.
func drainable(p *corev1.Pod) bool {
	switch {
	case p.Status.Phase == corev1.PodSucceeded, p.Status.Phase == corev1.PodFailed, ownedBy(p, "Node"):
		return false
	}
	return !slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool {
		return (t.Key == karpv1.DisruptedTaintKey || (t.Key == "" && t.Operator == corev1.TolerationOpExists)) &&
			(t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule)
	})
}

func ownedBy(p *corev1.Pod, kind string) bool {
	owner := metav1.GetControllerOf(p)
	return owner != nil && owner.Kind == kind
}

// tier is when in a drain it is the pod's turn, as in Karpenter and in the kubelet's own shutdown: workloads first, then
// daemonsets, which may be what the workloads need (storage, network, logs); after both what the cluster needs.
func tier(p *corev1.Pod) int {
	n := 0
	if ownedBy(p, "DaemonSet") {
		n++
	}
	if p.Spec.PriorityClassName == "system-cluster-critical" || p.Spec.PriorityClassName == "system-node-critical" {
		n += 2
	}
	return n
}

func grace(p *corev1.Pod) time.Duration {
	return time.Duration(ptr.Deref(p.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)) * time.Second
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// protection says whether the pod's do-not-disrupt annotation holds ("true", or a duration from its start on) and until
// when, zero if for good or if the pod has not started. invalid is what cannot be read; it protects nothing, as in Karpenter.
func protection(p *corev1.Pod, now time.Time) (holds bool, until time.Time, invalid string) {
	v, ok := p.Annotations[karpv1.DoNotDisruptAnnotationKey]
	switch {
	case !ok || v == "false":
		return false, time.Time{}, ""
	case v == "true":
		return true, time.Time{}, ""
	}
	d, err := time.ParseDuration(v)
	switch {
	case err != nil || d <= 0:
		return false, time.Time{}, v
	case p.Status.StartTime == nil:
		return true, time.Time{}, ""
	}
	until = p.Status.StartTime.Add(d)
	return now.Before(until), until, ""
}

// nameOf is how pods are named in messages.
func nameOf(p *corev1.Pod) string { return fmt.Sprintf("%s/%s", p.Namespace, p.Name) }
