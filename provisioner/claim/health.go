// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// doNotRepair on a Node or NodeClaim with the value "true" keeps it from being repaired (Karpenter's).
const doNotRepair = "karpenter.sh/do-not-repair"

const (
	// repairGrace is how long the pods of a node that is repaired have to leave (Karpenter's repair policies for AWS).
	repairGrace = 10 * time.Minute
	// unhealthyPercent is the breaker: where more of a pool's nodes are unhealthy, rounded up, the trouble is not the nodes'
	// (Karpenter's threshold).
	unhealthyPercent = 20
	// repairAgain is how long a repair that the breaker stopped waits.
	repairAgain = time.Minute
)

// policy is a node condition that means trouble when it lasts.
type policy struct {
	condition corev1.NodeConditionType
	status    corev1.ConditionStatus
	tolerated time.Duration
}

// policies are those of Karpenter's AWS provider (pkg/cloudprovider, RepairPolicies): the kubelet's own condition and those of the
// EKS node monitoring agent.
func policies() []policy {
	return []policy{
		{corev1.NodeReady, corev1.ConditionFalse, 30 * time.Minute},
		{corev1.NodeReady, corev1.ConditionUnknown, 30 * time.Minute},
		{"AcceleratedHardwareReady", corev1.ConditionFalse, 10 * time.Minute},
		{"StorageReady", corev1.ConditionFalse, 30 * time.Minute},
		{"NetworkingReady", corev1.ConditionFalse, 30 * time.Minute},
		{"KernelReady", corev1.ConditionFalse, 30 * time.Minute},
		{"ContainerRuntimeReady", corev1.ConditionFalse, 30 * time.Minute},
	}
}

// trouble returns the condition of the node that is to be repaired first, and when that is due; nil if there is none.
func trouble(node *corev1.Node) (found *corev1.NodeCondition, due time.Time) {
	for _, p := range policies() {
		for i := range node.Status.Conditions {
			c := &node.Status.Conditions[i]
			if c.Type != p.condition || c.Status != p.status {
				continue
			}
			if at := c.LastTransitionTime.Add(p.tolerated); found == nil || at.Before(due) {
				found, due = c, at
			}
		}
	}
	return found, due
}

// HealthReconciler replaces nodes that have been unhealthy for longer than is tolerated (Karpenter's feature NodeRepair).
type HealthReconciler struct{ Options }

// NewHealth returns a reconciler.
func NewHealth(o Options) *HealthReconciler { return &HealthReconciler{o.withDefaults()} }

// SetupWithManager registers the reconciler for Nodes whose conditions change.
func (r *HealthReconciler) SetupWithManager(m ctrl.Manager) error {
	changed := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*corev1.Node)
		after, ok2 := e.ObjectNew.(*corev1.Node)
		return ok1 && ok2 && !sameHealth(before, after)
	}}
	return ctrl.NewControllerManagedBy(m).
		Named("node.health").
		For(&corev1.Node{}, builder.WithPredicates(changed)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 10}).
		Complete(r)
}

func sameHealth(a, b *corev1.Node) bool {
	ca, da := trouble(a)
	cb, db := trouble(b)
	return (ca == nil) == (cb == nil) && da.Equal(db) && a.Annotations[doNotRepair] == b.Annotations[doNotRepair]
}

// Reconcile implements reconcile.Reconciler.
func (r *HealthReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	if err := r.Kube.Get(ctx, req.NamespacedName, node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	found, due := trouble(node)
	if found == nil || node.DeletionTimestamp != nil || !ours(node) {
		return reconcile.Result{}, nil
	}
	if left := due.Sub(r.Clock.Now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	claim, err := r.claimOf(ctx, node)
	if err != nil || claim == nil || claim.DeletionTimestamp != nil {
		return reconcile.Result{}, err
	}
	if node.Annotations[doNotRepair] == "true" || claim.Annotations[doNotRepair] == "true" {
		r.blocked(node, claim, "it has the annotation "+doNotRepair)
		return reconcile.Result{}, nil
	}
	sick, all, err := r.unhealthy(ctx, node.Labels[karpv1.NodePoolLabelKey])
	if err != nil {
		return reconcile.Result{}, err
	}
	if most := (all*unhealthyPercent + 99) / 100; sick > most {
		r.blocked(node, claim, fmt.Sprintf("%d of %d nodes of NodePool %q are unhealthy, which is more than %d %%", sick, all, node.Labels[karpv1.NodePoolLabelKey], unhealthyPercent))
		return reconcile.Result{RequeueAfter: repairAgain}, nil
	}
	return reconcile.Result{}, r.repair(ctx, claim, found)
}

// claimOf returns the one claim of a node, nil if there is none or more than one.
func (r *HealthReconciler) claimOf(ctx context.Context, node *corev1.Node) (*karpv1.NodeClaim, error) {
	var claims karpv1.NodeClaimList
	if err := r.Kube.List(ctx, &claims, client.MatchingFields{fieldClaimProviderID: node.Spec.ProviderID}); err != nil {
		return nil, fmt.Errorf("listing the claims of node %q: %w", node.Name, err)
	}
	if len(claims.Items) != 1 || !managed(&claims.Items[0]) {
		return nil, nil
	}
	return &claims.Items[0], nil
}

// unhealthy counts the nodes of a pool and those among them that are in trouble, however short.
func (r *HealthReconciler) unhealthy(ctx context.Context, pool string) (sick, all int, err error) {
	var nodes corev1.NodeList
	if err := r.Kube.List(ctx, &nodes, client.MatchingLabels{karpv1.NodePoolLabelKey: pool}, client.UnsafeDisableDeepCopy); err != nil {
		return 0, 0, fmt.Errorf("listing the nodes of NodePool %q: %w", pool, err)
	}
	for i := range nodes.Items {
		if c, _ := trouble(&nodes.Items[i]); c != nil {
			sick++
		}
	}
	return sick, len(nodes.Items), nil
}

func (r *HealthReconciler) blocked(node *corev1.Node, claim *karpv1.NodeClaim, why string) {
	r.Events.Eventf(node, claim, corev1.EventTypeWarning, "NodeRepairBlocked", "Repair", "Node is unhealthy and is not replaced: %s", why)
	r.Events.Eventf(claim, node, corev1.EventTypeWarning, "NodeRepairBlocked", "Repair", "Node is unhealthy and is not replaced: %s", why)
}

// repair ends the claim, with a deadline for its pods.
func (r *HealthReconciler) repair(ctx context.Context, claim *karpv1.NodeClaim, found *corev1.NodeCondition) error {
	message := fmt.Sprintf("Node condition %s has been %s since %s: %s", found.Type, found.Status, found.LastTransitionTime.UTC().Format(time.RFC3339), found.Message)
	before := claim.DeepCopy()
	deadline := r.Clock.Now().Add(repairGrace)
	if at, err := time.Parse(time.RFC3339, claim.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey]); err != nil || at.After(deadline) {
		if g := claim.Spec.TerminationGracePeriod; g != nil && g.Duration < repairGrace {
			deadline = r.Clock.Now().Add(g.Duration)
		}
		claim.Annotations = merged(claim.Annotations, map[string]string{karpv1.NodeClaimTerminationTimestampAnnotationKey: deadline.UTC().Format(time.RFC3339)})
		if err := r.Kube.Patch(ctx, claim, client.MergeFrom(before)); err != nil {
			return client.IgnoreNotFound(fmt.Errorf("noting the termination time of NodeClaim %q: %w", claim.Name, err))
		}
	}
	if err := r.end(ctx, claim, endUnhealthy, message); err != nil {
		return err
	}
	r.Metrics.UnhealthyDisrupted.WithLabelValues(snake(string(found.Type)), claim.Labels[karpv1.NodePoolLabelKey], claim.Labels[karpv1.CapacityTypeLabelKey], claim.Status.ImageID).Inc()
	log.FromContext(ctx).Info("replacing an unhealthy node", "nodeClaim", claim.Name, "node", claim.Status.NodeName, "condition", string(found.Type), "status", string(found.Status))
	return nil
}

// snake writes a condition's name as Karpenter's metric has it.
func snake(s string) string {
	var b strings.Builder
	for i, c := range s {
		if c >= 'A' && c <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}
