// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/view"
)

// register joins the claim with its Node and returns the Node, nil if there is none yet or more than one. (Karpenter core,
// pkg/controllers/nodeclaim/lifecycle/registration.go.)
func (r *Reconciler) register(ctx context.Context, claim *karpv1.NodeClaim) (*corev1.Node, error) {
	conditions := r.conditions(claim)
	nodes, err := nodesOf(ctx, r.Kube, claim)
	if err != nil {
		return nil, err
	}
	registered := conditions.Get(karpv1.ConditionTypeRegistered)
	switch {
	case len(nodes) == 0:
		if registered.IsUnknown() {
			conditions.SetUnknownWithReason(karpv1.ConditionTypeRegistered, "NodeNotFound", "Node not registered with cluster")
		}
		return nil, nil
	case len(nodes) > 1:
		if registered.IsUnknown() {
			conditions.SetFalse(karpv1.ConditionTypeRegistered, "MultipleNodesFound", "Invariant violated, matched multiple nodes")
		}
		return nil, nil
	}
	node := &nodes[0]
	if !registered.IsUnknown() {
		return node, nil
	}
	if node.Labels[karpv1.NodeRegisteredLabelKey] == "" && !hasTaint(node.Spec.Taints, karpv1.UnregisteredNoExecuteTaint) {
		r.Events.Eventf(claim, nil, corev1.EventTypeWarning, "UnregisteredTaintMissing", "Register",
			"Missing %s taint which prevents registration related race conditions on Karpenter-managed nodes", karpv1.UnregisteredTaintKey)
	}
	before := node.DeepCopy()
	join(claim, node)
	if !equality.Semantic.DeepEqual(before, node) {
		if err := r.Kube.Patch(ctx, node, locked(before)); err != nil {
			return nil, fmt.Errorf("registering node %q: %w", node.Name, err)
		}
	}
	if err := r.open(ctx, claim, node); err != nil {
		return nil, err
	}
	claim.Status.NodeName = node.Name
	conditions.SetTrue(karpv1.ConditionTypeRegistered)
	return node, nil
}

// closed is the unregistered taint without its power to evict.
func closed() corev1.Taint {
	return corev1.Taint{Key: karpv1.UnregisteredTaintKey, Effect: corev1.TaintEffectNoSchedule}
}

// open takes off what join has left of the unregistered taint, and marks the Node as initialized if nothing else is missing.
func (r *Reconciler) open(ctx context.Context, claim *karpv1.NodeClaim, node *corev1.Node) error {
	if !hasTaint(node.Spec.Taints, closed()) {
		return nil
	}
	before := node.DeepCopy()
	node.Spec.Taints = without(node.Spec.Taints, closed())
	if reason, _ := uninitialized(claim, node); reason == "" {
		node.Labels[karpv1.NodeInitializedLabelKey] = "true"
	}
	if err := r.Kube.Patch(ctx, node, locked(before)); err != nil {
		return fmt.Errorf("opening node %q: %w", node.Name, err)
	}
	return nil
}

// join writes to the Node what the claim says about it. The unregistered taint, which has kept all pods off, goes in the
// same write as the labels and taints come, unless the Node is ready: the scheduler binds pods to such a node within
// milliseconds, and kube-controller-manager, which watches pods and nodes apart, evicts a pod that it sees on the node
// before it sees that a NoExecute taint is gone (pkg/controller/tainteviction). There the taint loses its effect on running
// pods first, and goes with a write of its own.
func join(claim *karpv1.NodeClaim, node *corev1.Node) {
	controllerutil.AddFinalizer(node, karpv1.TerminationFinalizer)
	own(claim, node)
	if node.Labels[karpv1.NodeDoNotSyncTaintsLabelKey] != "true" {
		for _, t := range slices.Concat(claim.Spec.Taints, claim.Spec.StartupTaints) {
			if !hasTaint(node.Spec.Taints, t) {
				node.Spec.Taints = append(node.Spec.Taints, t)
			}
		}
	}
	if hasTaint(node.Spec.Taints, karpv1.UnregisteredNoExecuteTaint) {
		node.Spec.Taints = without(node.Spec.Taints, karpv1.UnregisteredNoExecuteTaint)
		if nodeReady(node) {
			node.Spec.Taints = append(node.Spec.Taints, closed())
		}
	}
	node.Annotations = merged(node.Annotations, claim.Annotations)
	node.Labels = merged(node.Labels, claim.Labels)
	node.Labels[karpv1.NodeRegisteredLabelKey] = "true"
}

// own makes the claim the owner of the Node.
func own(claim *karpv1.NodeClaim, node *corev1.Node) {
	apiVersion, kind := "karpenter.sh/v1", "NodeClaim"
	for _, o := range node.OwnerReferences {
		if o.APIVersion == apiVersion && o.Kind == kind && o.UID == claim.UID {
			return
		}
	}
	node.OwnerReferences = append(node.OwnerReferences, metav1.OwnerReference{
		APIVersion: apiVersion, Kind: kind, Name: claim.Name, UID: claim.UID, BlockOwnerDeletion: new(true),
	})
}

func merged(base, over map[string]string) map[string]string {
	out := make(map[string]string, len(base)+len(over)+1)
	maps.Copy(out, base)
	maps.Copy(out, over)
	return out
}

func without(taints []corev1.Taint, t corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(have corev1.Taint) bool { return have.MatchTaint(&t) })
}

func hasTaint(taints []corev1.Taint, t corev1.Taint) bool {
	return slices.ContainsFunc(taints, func(have corev1.Taint) bool { return have.MatchTaint(&t) })
}

// initialize marks the Node as ready for pods. (Karpenter core, initialization.go.)
func (r *Reconciler) initialize(ctx context.Context, claim *karpv1.NodeClaim, node *corev1.Node) error {
	conditions := r.conditions(claim)
	if !conditions.Get(karpv1.ConditionTypeInitialized).IsUnknown() || !conditions.Get(karpv1.ConditionTypeRegistered).IsTrue() {
		return nil
	}
	if reason, message := uninitialized(claim, node); reason != "" && (reason != undeclaredTaints || !r.accepts(claim, node)) {
		conditions.SetUnknownWithReason(karpv1.ConditionTypeInitialized, reason, message)
		return nil
	}
	if node.Labels[karpv1.NodeInitializedLabelKey] != "true" {
		before := node.DeepCopy()
		node.Labels = merged(node.Labels, map[string]string{karpv1.NodeInitializedLabelKey: "true"})
		if err := r.Kube.Patch(ctx, node, locked(before)); err != nil {
			return fmt.Errorf("labelling node %q as initialized: %w", node.Name, err)
		}
	}
	conditions.SetTrue(karpv1.ConditionTypeInitialized)
	return nil
}

// undeclaredTaints is the reason for a Node that lacks nothing and has taints its claim does not know of.
const undeclaredTaints = "UndeclaredTaintsExist"

// uninitialized says what a Node still lacks, in Karpenter's words; an empty reason if nothing. Karpenter does not wait for
// taints that nobody declared: it lets pods go that cannot run there, and buys the next node for them.
func uninitialized(claim *karpv1.NodeClaim, node *corev1.Node) (reason, message string) {
	if !nodeReady(node) {
		return "NodeNotReady", "Node status is NotReady"
	}
	for _, t := range claim.Spec.StartupTaints {
		if hasTaint(node.Spec.Taints, t) {
			return "StartupTaintsExist", fmt.Sprintf("StartupTaint %q still exists", taintString(t))
		}
	}
	for _, t := range node.Spec.Taints {
		if ephemeral(t) {
			return "KnownEphemeralTaintsExist", fmt.Sprintf("KnownEphemeralTaint %q still exists", taintString(t))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(claim.Spec.Resources.Requests)) {
		asked, have := claim.Spec.Resources.Requests[name], node.Status.Allocatable[name]
		if !asked.IsZero() && have.IsZero() {
			return "ResourceNotRegistered", fmt.Sprintf("Resource %q was requested but not registered", name)
		}
	}
	if taints := view.Undeclared(claim, node); len(taints) > 0 {
		return undeclaredTaints, fmt.Sprintf("Taint %q is on the node and neither in taints nor in startupTaints of its claim", taintString(taints[0]))
	}
	return "", ""
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// ephemeral reports whether the taint is one that every booting node has for a while (Karpenter's KnownEphemeralTaints).
func ephemeral(t corev1.Taint) bool {
	switch {
	case t.Key == corev1.TaintNodeNotReady && (t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute),
		t.Key == corev1.TaintNodeUnreachable && t.Effect == corev1.TaintEffectNoSchedule,
		t.Key == "node.cloudprovider.kubernetes.io/uninitialized" && t.Effect == corev1.TaintEffectNoSchedule,
		t.MatchTaint(&karpv1.UnregisteredNoExecuteTaint):
		return true
	}
	return strings.HasPrefix(t.Key, "readiness.k8s.io/")
}

func taintString(t corev1.Taint) string {
	if t.Value == "" {
		return fmt.Sprintf("%s:%s", t.Key, t.Effect)
	}
	return fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect)
}
