// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// class says how much a disruption may put up with (Karpenter's graceful and eventual).
type class int

const (
	// graceful disruptions wait for pods that block eviction.
	graceful class = iota
	// eventual ones do so only on nodes without terminationGracePeriod, by the end of which everything goes.
	eventual
	// repair puts up with a node or pods that ask not to be disrupted: they do not work.
	repair
)

// optional reports whether the reason is one that is only about money.
func optional(reason karpv1.DisruptionReason) bool {
	return reason == karpv1.DisruptionReasonEmpty || reason == karpv1.DisruptionReasonUnderutilized
}

// blockedByBuffer is why nodes with room of capacity buffers are not taken away to save money.
const blockedByBuffer = "Node has room that a CapacityBuffer keeps free"

// blocker says what keeps the node from being disrupted, empty if nothing does. Messages are those of Karpenter's events, which
// begin with a capital. told is false for states that are no news: a node of a command, or without a Node.
func (s *Snapshot) blocker(n *Node, c class) (why string, told bool) {
	switch {
	case n.Record != nil:
		return "Node is already being disrupted", false
	case n.Node == nil:
		return "Nodeclaim does not have an associated node", false
	case n.Leaving():
		return "Node is deleting or marked for deletion", false
	case !n.Initialized() && c != repair:
		return "Node isn't initialized", true
	case n.Awaited && c != repair:
		return "Node is nominated for a pending pod", true
	case n.doNotDisrupt() && c != repair:
		return fmt.Sprintf("Disruption is blocked through the %q annotation", karpv1.DoNotDisruptAnnotationKey), true
	case s.Paused != "" && c != repair && len(n.Moving) > 0:
		return s.Paused, true
	case n.PoolName() == "":
		return fmt.Sprintf("Node doesn't have required label (label=%s)", karpv1.NodePoolLabelKey), true
	case n.Pool == nil:
		return fmt.Sprintf("NodePool not found (NodePool=%s)", n.PoolName()), true
	case n.Pool.DeletionTimestamp != nil:
		return fmt.Sprintf("NodePool is being deleted (NodePool=%s)", n.PoolName()), true
	case c == repair, c == eventual && n.Claim.Spec.TerminationGracePeriod != nil:
		return "", false
	}
	why = s.podBlocker(n.Load)
	return why, why != ""
}

// wantedBy is what is said of a node that a pod may be planned on.
func wantedBy(pod string) string { return fmt.Sprintf("Node has room for a pending pod (Pod=%s)", pod) }

// podBlocker says which of a node's pods must not be evicted now, empty if none. Mirror and daemonset pods count as well, as in
// Karpenter.
func (s *Snapshot) podBlocker(l *Load) string {
	for _, p := range l.guarded {
		if active(p) && protected(p, s.Now) {
			return fmt.Sprintf("Pod has %q annotation (Pod=%s)", karpv1.DoNotDisruptAnnotationKey, client.ObjectKeyFromObject(p))
		}
	}
	if len(s.limits) == 0 {
		return ""
	}
	for _, p := range l.Pods {
		if why := s.limits.blocks(p, s.Now); why != "" {
			return why
		}
	}
	return ""
}

// doNotDisrupt reports whether Node or claim ask not to be disrupted; only "true" counts there.
func (n *Node) doNotDisrupt() bool {
	return n.Node.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" || n.Claim.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true"
}

// unconsolidatable says why consolidation leaves the node alone for good, and whether that is worth an event.
func (n *Node) unconsolidatable() (why string, told bool) {
	d := n.Pool.Spec.Disruption
	switch labels := n.Node.Labels; {
	case n.Pool.Static():
		return "NodePool keeps a fixed number of nodes", false
	case n.Planned == nil || n.Planned.Price == 0:
		return fmt.Sprintf("Instance Type %q not found", labels[corev1.LabelInstanceTypeStable]), true
	case labels[karpv1.CapacityTypeLabelKey] == "":
		return fmt.Sprintf("Node does not have label %q", karpv1.CapacityTypeLabelKey), true
	case labels[corev1.LabelTopologyZone] == "":
		return fmt.Sprintf("Node does not have label %q", corev1.LabelTopologyZone), true
	case d.ConsolidateAfter.Duration == nil:
		return fmt.Sprintf("NodePool %q has consolidation disabled", n.PoolName()), true
	case d.ConsolidationPolicy == karpv1.ConsolidationPolicyWhenEmpty && !n.Empty():
		return fmt.Sprintf("NodePool %q has consolidation policy WhenEmpty, but node is not empty", n.PoolName()), true
	}
	return "", false
}
