// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/utils/ptr"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// findReservations resolves spec.capacityReservationSelectorTerms. Terms that match nothing are no fault of the class:
// reservations come and go.
func (r *ClassReconciler) findReservations(ctx context.Context, class *v1.EC2NodeClass) (found, error) {
	if len(class.Spec.CapacityReservationSelectorTerms) == 0 {
		return found{write: func(c *v1.EC2NodeClass) { c.Status.CapacityReservations = nil }}, nil
	}
	reservations, err := r.Reserved.CapacityReservations(ctx, class.Spec.CapacityReservationSelectorTerms)
	if err != nil {
		return found{}, err
	}
	var out []v1.CapacityReservation
	for _, x := range reservations {
		out = append(out, x.CapacityReservation)
	}
	return found{write: func(c *v1.EC2NodeClass) { c.Status.CapacityReservations = out }}, nil
}

// nextLook is when the class has to be looked at again: in a refresh's time, or when a reservation ends or begins to expire.
func nextLook(class *v1.EC2NodeClass, now time.Time, within time.Duration) time.Duration {
	for _, r := range class.Status.CapacityReservations {
		if r.EndTime != nil {
			if left := r.EndTime.Sub(now); left > 0 {
				within = min(within, left)
			}
		}
	}
	return within
}

// findPlacementGroup resolves spec.placementGroupSelector into an annotation: the status has no field for it.
func (r *ClassReconciler) findPlacementGroup(ctx context.Context, class *v1.EC2NodeClass) (found, error) {
	none := func(c *v1.EC2NodeClass) { delete(c.Annotations, ec2.AnnotationPlacementGroup) }
	s := class.Spec.PlacementGroupSelector
	if s == nil {
		return found{write: none}, nil
	}
	group, err := r.Reserved.PlacementGroup(ctx, s)
	switch capacity.KindOf(err) {
	case capacity.NotFound:
		return found{write: none, verdict: fails(reasonNoPlacementGroup, "spec.placementGroupSelector: placement group %q not found", selected(s))}, nil
	case capacity.Invalid:
		return found{write: none, verdict: fails(reasonPlacementGroup, "%s", describeInvalid("spec.placementGroupSelector", err))}, nil
	default: // no verdict on the class: success, or a failure to be retried
	}
	if err != nil {
		return found{}, err
	}
	text, err := json.Marshal(group)
	if err != nil {
		return found{}, fmt.Errorf("writing placement group %q: %w", group.ID, err)
	}
	return found{write: func(c *v1.EC2NodeClass) {
		setAnnotations(c, map[string]string{ec2.AnnotationPlacementGroup: string(text)})
	}}, nil
}

func selected(s *v1.PlacementGroupSelector) string {
	if s.ID != nil {
		return *s.ID
	}
	return ptr.Deref(s.Name, "")
}
