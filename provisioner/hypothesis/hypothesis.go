// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package hypothesis

import corev1 "k8s.io/api/core/v1"

// Node is a node that does not exist yet, with the pods that count as being on it already.
type Node struct {
	// Node is the complete template: labels, allocatable, the taints that stay. A template that declares no features
	// (status.declaredFeatures) is taken to declare those of a kubelet of this version. A template whose node has
	// joined the cluster in the meantime counts as that node.
	Node *corev1.Node
	// Present are pods taken as being on the node without a check: daemonset pods and pods planned earlier. Pods the
	// cluster has there already are skipped.
	Present []*corev1.Pod
	// AttachLimits are how many volumes each CSI driver can attach to the node, as far as that is known. Of a driver that is
	// not named the limit is that of the cluster's nodes of the same instance type; without any, it has none.
	AttachLimits map[string]int32
}

// Trial is a pod to be placed on the node of that name: a hypothetical one, or one of the cluster.
type Trial struct {
	Pod  *corev1.Pod
	Node string
}

// Refusal is a trial that the scheduler would not carry out.
type Refusal struct {
	Trial

	Plugin string // the plugin that refused it; "" if none was reached
	Reason string // in the plugin's own words
}
