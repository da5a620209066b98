// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Phase says how far a claim and its node have come. n is nil until the node has joined.
func Phase(c *karpv1.NodeClaim, n *corev1.Node) capacity.Phase {
	switch {
	case !c.DeletionTimestamp.IsZero():
		return capacity.Leaving
	case c.Status.ProviderID == "":
		return capacity.Planned
	case n == nil:
		return capacity.Launched
	case leaving(n):
		return capacity.Leaving
	case usable(c, n), n.Labels[karpv1.NodeInitializedLabelKey] == "true":
		// A node that was usable once is not on its way when it is not ready for a while: its taints say who may use it.
		return capacity.Usable
	default:
		return capacity.Launched
	}
}

// leaving reports whether the node is on its way out or closed for new pods.
func leaving(n *corev1.Node) bool {
	if !n.DeletionTimestamp.IsZero() || n.Spec.Unschedulable {
		return true
	}
	for i := range n.Spec.Taints {
		if n.Spec.Taints[i].Key == karpv1.DisruptedTaintKey {
			return true
		}
	}
	return false
}

// usable reports whether the scheduler can bind the claim's pods to the node: registered, ready, startup taints and the
// taints of booting nodes gone, those that nobody declared too, and every extended resource the claim was bought for reported.
func usable(c *karpv1.NodeClaim, n *corev1.Node) bool {
	return booted(c, n) && len(Undeclared(c, n)) == 0
}

// Undeclared are the taints of a node that keep pods off it and that neither its claim nor Kubernetes itself has put there.
// Agents put such taints on nodes while they start, and their pools do not always list them under startupTaints: until the
// claim's initialization, which waits for them for a bounded time, the node counts as on its way.
func Undeclared(c *karpv1.NodeClaim, n *corev1.Node) []corev1.Taint {
	var out []corev1.Taint
	for _, t := range n.Spec.Taints {
		is := func(d corev1.Taint) bool { return d.MatchTaint(&t) }
		declared := slices.ContainsFunc(c.Spec.Taints, is) || slices.ContainsFunc(c.Spec.StartupTaints, is)
		known := booting(t) || t.Key == karpv1.DisruptedTaintKey || strings.HasPrefix(t.Key, "node.kubernetes.io/")
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !declared && !known {
			out = append(out, t)
		}
	}
	return out
}

// Admits reports whether nothing but undeclared taints keeps the claim's pods off the node, and the pod tolerates them.
func Admits(c *karpv1.NodeClaim, n *corev1.Node, pod *corev1.Pod) bool {
	if !booted(c, n) {
		return false
	}
	_, ok := capacity.Tolerates(pod.Spec.Tolerations, Undeclared(c, n))
	return ok
}

// booted is usable but for taints that nobody declared.
func booted(c *karpv1.NodeClaim, n *corev1.Node) bool {
	if n.Labels[karpv1.NodeRegisteredLabelKey] != "true" || !Ready(n) {
		return false
	}
	for _, t := range n.Spec.Taints {
		if booting(t) && !lingering(t) {
			return false
		}
		for i := range c.Spec.StartupTaints {
			if c.Spec.StartupTaints[i].MatchTaint(&t) {
				return false
			}
		}
	}
	for name, q := range c.Spec.Resources.Requests {
		if have := n.Status.Allocatable[name]; !q.IsZero() && have.IsZero() {
			return false
		}
	}
	return true
}

// Ready reports whether the node's kubelet says that it is ready.
func Ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// lingering reports whether the taint may still be on a node that is ready: the node lifecycle controller takes its NoExecute
// taints off at its next look, up to five seconds later, and pods tolerate them for five minutes (admission plugin
// DefaultTolerationSeconds). Waiting for it would hold every pod of the node.
func lingering(t corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoExecute && (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
}

// booting reports whether the taint is one that every node carries while it starts.
func booting(t corev1.Taint) bool {
	switch t.Key {
	case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeNetworkUnavailable,
		"node.cloudprovider.kubernetes.io/uninitialized", karpv1.UnregisteredTaintKey:
		return true
	}
	return strings.HasPrefix(t.Key, "readiness.k8s.io/")
}
