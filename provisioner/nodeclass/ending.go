// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// namedClaims is how many claims an event names before it only counts.
const namedClaims = 5

// ending finishes a class that is being deleted: 1 wait for its claims, 2 delete instance profiles and launch
// templates, 3 let go. Every step can be repeated.
func (r *ClassReconciler) ending(ctx context.Context, class *v1.EC2NodeClass) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(class, v1.TerminationFinalizer) {
		return reconcile.Result{}, nil
	}
	claims, err := claimsOf(ctx, r.Kube, class.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(claims) > 0 {
		names := make([]string, 0, len(claims))
		for _, c := range claims {
			names = append(names, c.Name)
		}
		r.Events.Eventf(class, nil, corev1.EventTypeNormal, "WaitingOnNodeClaimTermination", "Delete",
			"Waiting on NodeClaim termination for %s", list(names))
		// The end of each claim brings another reconcile; this one repeats the event.
		return reconcile.Result{RequeueAfter: waitingEvery}, nil
	}
	if err := errors.Join(r.Profiles.DeleteInstanceProfiles(ctx, class), r.deleteTemplates(ctx, class.Name)); err != nil {
		return reconcile.Result{}, fmt.Errorf("deleting what was made for node class %q: %w", class.Name, err)
	}
	stored := class.DeepCopy()
	controllerutil.RemoveFinalizer(class, v1.TerminationFinalizer)
	if err := r.Kube.Patch(ctx, class, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	r.resolved.forget(class.UID)
	r.allowed.forget(class.UID)
	log.FromContext(ctx).Info("deleted node class")
	return reconcile.Result{}, nil
}

func (r *ClassReconciler) deleteTemplates(ctx context.Context, class string) error {
	templates, err := r.Templates.Templates(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range templates {
		if t.Tags[ec2.TagNodeClass] == class {
			errs = append(errs, r.Templates.DeleteTemplate(ctx, t.Name))
		}
	}
	return errors.Join(errs...)
}

// list names the first few in order and counts the others.
func list(names []string) string {
	slices.Sort(names)
	if len(names) <= namedClaims {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:namedClaims], ", "), len(names)-namedClaims)
}
