// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// finalize ends a deleted claim: node out of service, drain, instance, node, claim.
func (r *Reconciler) finalize(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(claim, karpv1.TerminationFinalizer) {
		return reconcile.Result{}, nil
	}
	if claim.Status.ProviderID == "" {
		return r.finalizeUnlaunched(ctx, claim)
	}
	deadline, err := r.deadline(ctx, claim)
	if err != nil {
		return reconcile.Result{}, err
	}
	nodes, err := nodesOf(ctx, r.Kube, claim)
	if err != nil {
		return reconcile.Result{}, err
	}
	gone, err := r.goneAlready(ctx, claim, nodes)
	if err != nil {
		return reconcile.Result{}, err
	}
	before := claim.DeepCopy()
	wait := time.Duration(0)
	if !gone {
		wait, err = r.empty(ctx, claim, nodes, deadline)
	}
	if !gone && wait == 0 && err == nil {
		gone, err = r.terminate(ctx, claim)
		wait = r.Poll
	}
	if werr := r.writeStatus(ctx, before, claim); err == nil {
		err = werr
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if !gone {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if err := r.release(ctx, nodes); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.letGo(ctx, claim)
}

// deadline is when the claim's terminationGracePeriod ends, nil if it has none. It is fixed once, in an annotation that
// others may write too (Karpenter's contract: a forceful end sets it to now).
func (r *Reconciler) deadline(ctx context.Context, claim *karpv1.NodeClaim) (*time.Time, error) {
	if text, ok := claim.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey]; ok {
		at, err := time.Parse(time.RFC3339, text)
		if err == nil {
			return &at, nil
		}
		// Written by hand: it must not keep the claim for ever.
		log.FromContext(ctx).Info("the claim's termination time cannot be read; its terminationGracePeriod counts", "reason", err.Error())
	}
	if claim.Spec.TerminationGracePeriod == nil {
		return nil, nil
	}
	at := claim.DeletionTimestamp.Add(claim.Spec.TerminationGracePeriod.Duration)
	before := claim.DeepCopy()
	claim.Annotations = merged(claim.Annotations, map[string]string{karpv1.NodeClaimTerminationTimestampAnnotationKey: at.Format(time.RFC3339)})
	if err := r.Kube.Patch(ctx, claim, locked(before)); err != nil {
		return nil, fmt.Errorf("noting the termination time of NodeClaim %q: %w", claim.Name, err)
	}
	r.Events.Eventf(claim, nil, corev1.EventTypeWarning, "TerminationGracePeriodExpiring", "Terminate", "All pods will be deleted by %s", at.Format(time.RFC3339))
	return &at, nil
}

// goneAlready reports whether the instance ended by itself, so that there is nothing to drain. Where EC2 has forgotten the
// instance, a Node that still reports as ready is believed more. While a drain of ready Nodes goes on EC2 is not asked.
func (r *Reconciler) goneAlready(ctx context.Context, claim *karpv1.NodeClaim, nodes []corev1.Node) (bool, error) {
	ready := slices.ContainsFunc(nodes, func(n corev1.Node) bool { return nodeReady(&n) })
	if ready && r.conditions(claim).Get(karpv1.ConditionTypeDrained) != nil {
		return false, nil
	}
	i, err := describeOne(ctx, r.Cloud, claim)
	if err != nil || i == nil {
		return err == nil && !ready, err
	}
	return i.State == "terminated", nil
}

// outOfService taints the Node, takes it out of load balancers and deletes it; its finalizer keeps the object until release.
func (r *Reconciler) outOfService(ctx context.Context, node *corev1.Node) error {
	before := node.DeepCopy()
	if !hasTaint(node.Spec.Taints, karpv1.DisruptedNoScheduleTaint) {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.DisruptedTaintKey })
		node.Spec.Taints = append(node.Spec.Taints, karpv1.DisruptedNoScheduleTaint)
	}
	if node.Labels[corev1.LabelNodeExcludeBalancers] == "" {
		node.Labels = merged(node.Labels, map[string]string{corev1.LabelNodeExcludeBalancers: "karpenter"})
	}
	if len(node.Spec.Taints) != len(before.Spec.Taints) || len(node.Labels) != len(before.Labels) {
		if err := r.Kube.Patch(ctx, node, locked(before)); err != nil {
			return fmt.Errorf("tainting node %q: %w", node.Name, err)
		}
	}
	if node.DeletionTimestamp != nil {
		return nil
	}
	if err := r.Kube.Delete(ctx, node, client.Preconditions{UID: new(node.UID)}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting node %q: %w", node.Name, err)
	}
	return nil
}

// terminate asks EC2 to end the instance and reports whether it has.
func (r *Reconciler) terminate(ctx context.Context, claim *karpv1.NodeClaim) (gone bool, err error) {
	i, err := describeOne(ctx, r.Cloud, claim)
	if err != nil {
		return false, err
	}
	conditions := r.conditions(claim)
	if i == nil || i.State == "terminated" {
		conditions.SetTrue(karpv1.ConditionTypeInstanceTerminating)
		return true, nil
	}
	if i.State != "shutting-down" {
		if err := r.Cloud.Terminate(ctx, []string{i.ID}); err != nil {
			why := fmt.Sprintf("Instance %s is not terminated and goes on costing: EC2 answers %s", i.ID, answer(err))
			if conditions.SetUnknownWithReason(karpv1.ConditionTypeInstanceTerminating, "TerminationFailed", why) {
				r.Events.Eventf(claim, nil, corev1.EventTypeWarning, "TerminationFailed", "Terminate", "%s", why)
			}
			return false, fmt.Errorf("terminating the instance of NodeClaim %q: %w", claim.Name, err)
		}
	}
	if conditions.SetTrue(karpv1.ConditionTypeInstanceTerminating) {
		log.FromContext(ctx).Info("terminating", "instanceID", i.ID)
	}
	return false, nil
}

// answer is EC2's error without the request's id, which would make every try news.
func answer(err error) string {
	var e *capacity.Error
	if errors.As(err, &e) && e.Code != "" {
		return fmt.Sprintf("%s (%s)", e.Code, e.Kind)
	}
	return string(capacity.KindOf(err))
}

// describeOne returns the claim's instance, nil if EC2 does not know it.
func describeOne(ctx context.Context, cloud Cloud, claim *karpv1.NodeClaim) (*ec2.Instance, error) {
	found, err := cloud.Describe(ctx, []string{instanceID(claim.Status.ProviderID)})
	switch {
	case len(found) > 0:
		return &found[0], nil
	case err == nil || capacity.KindOf(err) == capacity.NotFound:
		return nil, nil
	}
	return nil, fmt.Errorf("describing the instance of NodeClaim %q: %w", claim.Name, err)
}

// finalizeUnlaunched ends a claim that says nothing about an instance. Its launch may have been cut off between EC2's
// answer and the claim's status, so EC2 is asked first. Instances of a launch that several claims share are the
// [Collector]'s, who sees how many claims are left.
func (r *Reconciler) finalizeUnlaunched(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	own, group := launchIDs(claim)
	if own == group {
		found, err := r.Cloud.DescribeByTag(ctx, ec2.TagLaunch, []string{own})
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("looking for the instance of NodeClaim %q: %w", claim.Name, err)
		}
		var end []string
		left := 0
		for _, i := range found {
			if i.State == "terminated" {
				if err := deleteNodes(ctx, r.Kube, i.ProviderID()); err != nil {
					return reconcile.Result{}, err
				}
				continue
			}
			left++
			if i.State != "shutting-down" {
				end = append(end, i.ID)
			}
		}
		if len(end) > 0 {
			if err := r.Cloud.Terminate(ctx, end); err != nil {
				return reconcile.Result{}, fmt.Errorf("terminating the instance of NodeClaim %q: %w", claim.Name, err)
			}
			log.FromContext(ctx).Info("terminating the instance of an interrupted launch", "instanceID", end[0])
		}
		if left > 0 {
			return reconcile.Result{RequeueAfter: r.Poll}, nil
		}
	}
	return reconcile.Result{}, r.letGo(ctx, claim)
}

// release lets the Nodes of an instance that is gone go: those that were registered lose their finalizer, all are deleted.
func (r *Reconciler) release(ctx context.Context, nodes []corev1.Node) error {
	for i := range nodes {
		if err := r.releaseNode(ctx, &nodes[i]); err != nil {
			return err
		}
	}
	return nil
}

func (o *Options) releaseNode(ctx context.Context, node *corev1.Node) error {
	if node.DeletionTimestamp == nil {
		if err := o.Kube.Delete(ctx, node, client.Preconditions{UID: new(node.UID)}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting node %q: %w", node.Name, err)
		}
	}
	before := node.DeepCopy()
	if !controllerutil.RemoveFinalizer(node, karpv1.TerminationFinalizer) {
		return nil
	}
	// A strategic merge patch takes one element out of the list and leaves other finalizers alone.
	if err := o.Kube.Patch(ctx, node, client.StrategicMergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer of node %q: %w", node.Name, err)
	}
	o.Metrics.NodesTerminated.WithLabelValues(node.Labels[karpv1.NodePoolLabelKey], node.Labels[corev1.LabelTopologyZone]).Inc()
	return nil
}

// deleteNodes deletes the Node objects of an instance that is gone.
func deleteNodes(ctx context.Context, kube client.Client, providerID string) error {
	var nodes corev1.NodeList
	if err := kube.List(ctx, &nodes, client.MatchingFields{fieldNodeProviderID: providerID}); err != nil {
		return fmt.Errorf("listing the nodes of %q: %w", providerID, err)
	}
	for i := range nodes.Items {
		if err := kube.Delete(ctx, &nodes.Items[i]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting node %q: %w", nodes.Items[i].Name, err)
		}
	}
	return nil
}

// letGo removes the claim's finalizer.
func (r *Reconciler) letGo(ctx context.Context, claim *karpv1.NodeClaim) error {
	before := claim.DeepCopy()
	controllerutil.RemoveFinalizer(claim, karpv1.TerminationFinalizer)
	if err := r.Kube.Patch(ctx, claim, locked(before)); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("removing the finalizer of NodeClaim %q: %w", claim.Name, err)
	}
	r.Metrics.ClaimsTerminated.WithLabelValues(claim.Labels[karpv1.NodePoolLabelKey], claim.Labels[karpv1.CapacityTypeLabelKey], claim.Labels[corev1.LabelTopologyZone]).Inc()
	log.FromContext(ctx).Info("claim is gone", "node", claim.Status.NodeName, "instanceID", instanceID(claim.Status.ProviderID))
	return nil
}
