// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Reasons a claim is deleted for, as values of Karpenter's metric karpenter_nodeclaims_disrupted_total.
const (
	endLaunch         = "launch_timeout"
	endRegistration   = "registration_timeout"
	endInitialization = "initialization_timeout" // Karpenter has none
	endGone           = "garbage_collected"
)

// awaitLaunch deletes a claim that has had no instance for the launch timeout, counted from its creation.
func (r *Reconciler) awaitLaunch(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	if left := r.LaunchTimeout - r.Clock.Since(claim.CreationTimestamp.Time); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	why := "EC2 was not asked"
	if c := claim.StatusConditions().Get(karpv1.ConditionTypeLaunched); c.Message != "" {
		why = c.Message
	}
	return reconcile.Result{}, r.end(ctx, claim, endLaunch, fmt.Sprintf("No instance after %s: %s", r.LaunchTimeout, why))
}

// awaitRegistration deletes a claim whose Node has not appeared within the registration timeout.
func (r *Reconciler) awaitRegistration(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	registered := claim.StatusConditions().Get(karpv1.ConditionTypeRegistered)
	if registered.IsTrue() {
		return r.awaitInitialization(ctx, claim)
	}
	since := registered.LastTransitionTime.Time
	if since.IsZero() {
		since = claim.CreationTimestamp.Time
	}
	if left := r.RegistrationTimeout - r.Clock.Since(since); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	return reconcile.Result{}, r.endElsewhere(ctx, claim, endRegistration, fmt.Sprintf("No Node after %s: %s", r.RegistrationTimeout, registered.Message))
}

// endElsewhere ends a claim whose instance did not become a working node, and has the next try made with another offering: the
// launcher counts the one on a claim that is being deleted as a shortage for a while.
func (o *Options) endElsewhere(ctx context.Context, claim *karpv1.NodeClaim, reason, message string) error {
	key := capacity.OfferingKey{
		InstanceType: claim.Labels[corev1.LabelInstanceTypeStable], Zone: claim.Labels[corev1.LabelTopologyZone],
		CapacityType: claim.Labels[karpv1.CapacityTypeLabelKey], ReservationID: claim.Labels[capacity.ReservationIDLabel],
		PlacementGroup: claim.Labels[v1.LabelPlacementGroupID],
	}
	if _, ok := capacity.ParseOfferingKey(key.String()); ok {
		before := claim.DeepCopy()
		claim.Annotations = merged(claim.Annotations, map[string]string{capacity.AvoidAnnotation: key.String()})
		if err := o.Kube.Patch(ctx, claim, client.MergeFrom(before)); err != nil {
			return client.IgnoreNotFound(fmt.Errorf("noting the offering of NodeClaim %q: %w", claim.Name, err))
		}
	}
	return o.end(ctx, claim, reason, message)
}

// end deletes a claim.
func (o *Options) end(ctx context.Context, claim *karpv1.NodeClaim, reason, message string) error {
	err := o.Kube.Delete(ctx, claim, client.Preconditions{UID: new(claim.UID)})
	if err != nil {
		return client.IgnoreNotFound(fmt.Errorf("deleting NodeClaim %q: %w", claim.Name, err))
	}
	o.Events.Eventf(claim, nil, corev1.EventTypeWarning, eventReason(reason), "Delete", "%s", message)
	o.Metrics.ClaimsDisrupted.WithLabelValues(reason, claim.Labels[karpv1.NodePoolLabelKey], claim.Labels[karpv1.CapacityTypeLabelKey]).Inc()
	log.FromContext(ctx).Info("deleted claim", "nodeClaim", claim.Name, "reason", reason, "age", o.Clock.Since(claim.CreationTimestamp.Time).Round(time.Second).String())
	return nil
}

func eventReason(reason string) string {
	switch reason {
	case endLaunch:
		return "LaunchTimeout"
	case endRegistration:
		return "RegistrationTimeout"
	case endInitialization:
		return "InitializationTimeout"
	default:
		return "InstanceGone"
	}
}
