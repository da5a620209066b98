// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Reasons a claim is deleted for, as values of Karpenter's metric karpenter_nodeclaims_disrupted_total.
const (
	endLaunch       = "launch_timeout"
	endRegistration = "registration_timeout"
	endGone         = "garbage_collected"
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
		return reconcile.Result{}, nil
	}
	since := registered.LastTransitionTime.Time
	if since.IsZero() {
		since = claim.CreationTimestamp.Time
	}
	if left := r.RegistrationTimeout - r.Clock.Since(since); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	return reconcile.Result{}, r.end(ctx, claim, endRegistration, fmt.Sprintf("No Node after %s: %s", r.RegistrationTimeout, registered.Message))
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
	default:
		return "InstanceGone"
	}
}
