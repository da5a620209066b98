// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// active reports whether the pod has neither ended nor is being deleted.
func active(p *corev1.Pod) bool { return !ended(p) && p.DeletionTimestamp == nil }

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// ownedBy reports whether the pod has an owner of the kind.
func ownedBy(p *corev1.Pod, apiVersion, kind string) bool {
	return slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.APIVersion == apiVersion && o.Kind == kind })
}

// reschedulable reports whether the pod needs a place elsewhere when its node goes (Karpenter's IsReschedulable): it is active,
// or a StatefulSet's that is being deleted and will come back, and belongs neither to a DaemonSet nor to the node.
func reschedulable(p *corev1.Pod) bool {
	return (active(p) || !ended(p) && ownedBy(p, "apps/v1", "StatefulSet")) && !ownedBy(p, "apps/v1", "DaemonSet") && !ownedBy(p, "v1", "Node")
}

// evictable reports whether draining would evict the pod (Karpenter's IsEvictable).
func evictable(p *corev1.Pod, now time.Time) bool {
	return active(p) && !ownedBy(p, "v1", "Node") && !protected(p, now) && !toleratesDisruption(p)
}

func toleratesDisruption(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool {
		return (t.Key == karpv1.DisruptedTaintKey || t.Key == "" && t.Operator == corev1.TolerationOpExists) &&
			(t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule)
	})
}

// protected reports whether the pod's do-not-disrupt annotation holds: "true", or a duration from the pod's start on. A pod
// that has not started is protected by any duration; a value that is neither is none.
func protected(p *corev1.Pod, now time.Time) bool {
	v := p.Annotations[karpv1.DoNotDisruptAnnotationKey]
	if v == "true" {
		return true
	}
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		return false
	}
	return p.Status.StartTime == nil || now.Before(p.Status.StartTime.Add(d))
}

// evictionCost is what evicting the pod counts (Karpenter's EvictionCost): 1, moved by the annotation pod-deletion-cost and by
// priority, between -10 and 10.
func evictionCost(p *corev1.Pod) float64 {
	cost := 1.0
	if v, err := strconv.ParseFloat(p.Annotations[corev1.PodDeletionCost], 64); err == nil && !math.IsNaN(v) {
		cost += v / (1 << 27)
	}
	cost += float64(ptr.Deref(p.Spec.Priority, 0)) / (1 << 25)
	return min(max(cost, -10), 10)
}

// baseCost is what disrupting a node counts beside its pods (Karpenter's PerNodeBaseDisruptionCost).
const baseCost = 1.0

// disruptionCost is Karpenter's RescheduleDisruptionCost of a node with these pods.
func disruptionCost(moving []*corev1.Pod) float64 {
	cost := baseCost
	for _, p := range moving {
		cost += max(evictionCost(p), 0)
	}
	return cost
}
