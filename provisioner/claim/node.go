// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// NodeReconciler looks after Nodes that are deleted: by hand, or left over.
type NodeReconciler struct{ Options }

// NewNode returns a reconciler.
func NewNode(o Options) *NodeReconciler { return &NodeReconciler{o.withDefaults()} }

// SetupWithManager registers the reconciler for Nodes that are being deleted.
func (r *NodeReconciler) SetupWithManager(m ctrl.Manager) error {
	deleted := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetDeletionTimestamp() != nil })
	return ctrl.NewControllerManagedBy(m).
		Named("node").
		For(&corev1.Node{}, builder.WithPredicates(deleted)).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers}).
		Complete(r)
}

// Reconcile implements reconcile.Reconciler.
func (r *NodeReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	if err := r.Kube.Get(ctx, req.NamespacedName, node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if node.DeletionTimestamp == nil || !controllerutil.ContainsFinalizer(node, karpv1.TerminationFinalizer) || !ours(node) {
		return reconcile.Result{}, nil
	}
	var claims karpv1.NodeClaimList
	if err := r.Kube.List(ctx, &claims, client.MatchingFields{fieldClaimProviderID: node.Spec.ProviderID}); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the claims of node %q: %w", node.Name, err)
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.DeletionTimestamp != nil || !capacity.Managed(claim.Spec.NodeClassRef) {
			continue // its own reconciler is at it
		}
		if err := r.Kube.Delete(ctx, claim, client.Preconditions{UID: new(claim.UID)}); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("deleting NodeClaim %q: %w", claim.Name, err)
		}
		log.FromContext(ctx).Info("deleted claim of a deleted node", "nodeClaim", claim.Name, "node", node.Name)
	}
	if len(claims.Items) > 0 {
		return reconcile.Result{}, nil
	}
	// No claim stands for the Node: nothing would ever take the finalizer off. The instance, if there is one, is the Collector's.
	return reconcile.Result{}, r.releaseNode(ctx, node)
}

// ours reports whether the Node was bought for one of the node class kinds Slipway owns: other providers of Karpenter use
// the same finalizer.
func ours(node *corev1.Node) bool {
	if !strings.HasPrefix(node.Spec.ProviderID, "aws:///") {
		return false
	}
	for _, group := range capacity.ClassGroups() {
		if _, ok := node.Labels[group+"/ec2nodeclass"]; ok {
			return true
		}
	}
	return false
}
