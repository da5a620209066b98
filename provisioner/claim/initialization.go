// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/view"
)

// InitializationTimeoutAnnotation on a NodeClaim (set it in NodePool spec.template.metadata.annotations) is how long its node may
// take from registration to initialization: a duration, or "Never". Karpenter waits for ever.
const InitializationTimeoutAnnotation = "slipway.sh/initialization-timeout"

// initializationTimeout is how long the claim's node may take; forever if it may take any time. A value that cannot be read
// counts as the default, and is said.
func (r *Reconciler) initializationTimeout(claim *karpv1.NodeClaim) (d time.Duration, forever bool, invalid string) {
	v, ok := claim.Annotations[InitializationTimeoutAnnotation]
	switch {
	case !ok:
		return r.InitializationTimeout, false, ""
	case v == karpv1.Never:
		return 0, true, ""
	}
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		return r.InitializationTimeout, false, v
	}
	return d, false, ""
}

// awaitInitialization ends a claim whose node has registered and does not become usable: a startup taint that nobody takes
// off, a device that is not there, a kubelet that is not ready. A node that workloads run on all the same is left to them, and said.
func (r *Reconciler) awaitInitialization(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	conditions := r.conditions(claim)
	initialized := conditions.Get(karpv1.ConditionTypeInitialized)
	if initialized.IsTrue() {
		return reconcile.Result{}, nil
	}
	timeout, forever, invalid := r.initializationTimeout(claim)
	if invalid != "" {
		r.Events.Eventf(claim, nil, corev1.EventTypeWarning, "InvalidAnnotation", "Initialize",
			"Annotation %s: %q is neither a duration such as \"30m\" nor \"Never\"; %s counts", InitializationTimeoutAnnotation, invalid, timeout)
	}
	if forever {
		return reconcile.Result{}, nil
	}
	if left := timeout - r.sinceRegistration(claim); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	message := fmt.Sprintf("Node %q is not initialized after %s: %s", claim.Status.NodeName, timeout, initialized.Message)
	used, err := r.used(ctx, claim.Status.NodeName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if used != "" {
		r.Events.Eventf(claim, nil, corev1.EventTypeWarning, "InitializationTimeout", "Initialize", "%s; it is kept because pod %q runs on it", message, used)
		return reconcile.Result{RequeueAfter: timeout}, nil
	}
	return reconcile.Result{}, r.endElsewhere(ctx, claim, endInitialization, message)
}

// sinceRegistration is how long the claim's node has been in the cluster.
func (r *Reconciler) sinceRegistration(claim *karpv1.NodeClaim) time.Duration {
	since := r.conditions(claim).Get(karpv1.ConditionTypeRegistered).LastTransitionTime.Time
	if since.IsZero() {
		since = claim.CreationTimestamp.Time
	}
	return r.Clock.Since(since)
}

// accepts reports whether a Node that lacks nothing but to be rid of taints nobody declared is to be used as it is, and says
// so: they were there until the deadline, and are there to stay. Pods that do not tolerate them are planned again, once.
func (r *Reconciler) accepts(claim *karpv1.NodeClaim, node *corev1.Node) bool {
	timeout, forever, _ := r.initializationTimeout(claim)
	if forever || r.sinceRegistration(claim) < timeout {
		return false
	}
	var names []string
	for _, t := range view.Undeclared(claim, node) {
		names = append(names, taintString(t))
	}
	r.Events.Eventf(claim, node, corev1.EventTypeWarning, "UndeclaredTaints", "Initialize",
		"Node %q still has taint %s after %s, and counts as initialized: list it under spec.template.spec.taints of the NodePool if it is to stay, under startupTaints if an agent takes it off",
		node.Name, strings.Join(names, ", "), timeout)
	return true
}

// used returns a workload's pod that is on the node, "" if there is none. The API server is asked: the node may go for it.
func (r *Reconciler) used(ctx context.Context, node string) (string, error) {
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.MatchingFields{fieldPodNodeName: node}); err != nil {
		return "", fmt.Errorf("listing the pods of node %q: %w", node, err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		if owner := metav1.GetControllerOf(p); owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "Node") {
			continue
		}
		return client.ObjectKeyFromObject(p).String(), nil
	}
	return "", nil
}

// checkConsistency compares an initialized Node with what its claim was promised, by Karpenter's rule: less than 90 % of a resource that
// pods asked for is wrong. (Karpenter core, pkg/controllers/nodeclaim/consistency.)
func (r *Reconciler) checkConsistency(claim *karpv1.NodeClaim, node *corev1.Node) {
	conditions := r.conditions(claim)
	if !conditions.Get(karpv1.ConditionTypeInitialized).IsTrue() {
		return
	}
	issues := shortOf(claim, node)
	if len(issues) == 0 {
		conditions.SetTrue(karpv1.ConditionTypeConsistentStateFound)
		return
	}
	if !conditions.SetFalse(karpv1.ConditionTypeConsistentStateFound, "ConsistencyCheckFailed", "Consistency Check Failed") {
		return
	}
	for _, issue := range issues {
		r.Events.Eventf(claim, node, corev1.EventTypeWarning, "FailedConsistencyCheck", "Check", "%s", issue)
	}
}

// shortOf says which resources the Node has much less of than promised.
func shortOf(claim *karpv1.NodeClaim, node *corev1.Node) []string {
	const enough = 0.90
	var out []string
	for name, asked := range claim.Spec.Resources.Requests {
		have, expected := node.Status.Capacity[name], claim.Status.Capacity[name]
		if asked.IsZero() || expected.IsZero() {
			continue
		}
		if share := have.AsApproximateFloat64() / expected.AsApproximateFloat64(); share < enough {
			out = append(out, fmt.Sprintf("expected %s of resource %s, but found %s (%0.1f%% of expected)", expected.String(), name, have.String(), share*100))
		}
	}
	return out
}
