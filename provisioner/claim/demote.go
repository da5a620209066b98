// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// demote corrects the labels of claims and Nodes whose capacity reservation has ended: their instances go on, on demand, and at
// that price. (Karpenter's controller capacityreservation.capacitytype.) A claim that was launched a moment ago is left alone:
// what EC2 says of its instance may be incomplete yet.
func (c *Collector) demote(ctx context.Context, instances []ec2.Instance, claims []karpv1.NodeClaim) error {
	now := map[string]ec2.Instance{}
	for _, i := range instances {
		now[i.ID] = i
	}
	var errs []error
	for i := range claims {
		claim := &claims[i]
		instance, known := now[instanceID(claim.Status.ProviderID)]
		launched := claim.StatusConditions().Get(karpv1.ConditionTypeLaunched)
		if !known || instance.CapacityType != karpv1.CapacityTypeOnDemand || claim.DeletionTimestamp != nil ||
			c.Clock.Since(launched.LastTransitionTime.Time) < c.OrphanAge {
			continue
		}
		errs = append(errs, c.demoteClaim(ctx, claim))
	}
	return errors.Join(errs...)
}

// demoteClaim corrects the claim, and the Node as well: a write of one of the two may have failed before.
func (c *Collector) demoteClaim(ctx context.Context, claim *karpv1.NodeClaim) error {
	changed, err := c.onDemand(ctx, claim)
	if err != nil || !changed && claim.Labels[karpv1.CapacityTypeLabelKey] != karpv1.CapacityTypeOnDemand {
		return err
	}
	if changed {
		log.FromContext(ctx).Info("capacity reservation has ended, the node stays, on demand", "nodeClaim", claim.Name, "node", claim.Status.NodeName)
	}
	nodes, err := nodesOf(ctx, c.Kube, claim)
	if err != nil {
		return err
	}
	for i := range nodes {
		if nodes[i].DeletionTimestamp != nil || nodes[i].Labels[karpv1.NodeRegisteredLabelKey] != "true" {
			continue // registration copies the claim's labels
		}
		if _, err := c.onDemand(ctx, &nodes[i]); err != nil {
			return err
		}
	}
	return nil
}

// onDemand takes what is said of a reservation off an object that is labelled as reserved.
func (c *Collector) onDemand(ctx context.Context, o client.Object) (changed bool, err error) {
	labels := o.GetLabels()
	if labels[karpv1.CapacityTypeLabelKey] != karpv1.CapacityTypeReserved {
		return false, nil
	}
	before, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return false, fmt.Errorf("copying %T %q", o, o.GetName())
	}
	labels[karpv1.CapacityTypeLabelKey] = karpv1.CapacityTypeOnDemand
	for _, key := range []string{capacity.ReservationIDLabel, capacity.ReservationTypeLabel, capacity.ReservationInterruptibleLabel} {
		delete(labels, key)
	}
	o.SetLabels(labels)
	kind := "NodeClaim"
	if _, isNode := o.(*corev1.Node); isNode {
		kind = "node"
	}
	if err := c.Kube.Patch(ctx, o, client.MergeFrom(before)); err != nil {
		return false, client.IgnoreNotFound(fmt.Errorf("labelling %s %q as on-demand: %w", kind, o.GetName(), err))
	}
	return true, nil
}
