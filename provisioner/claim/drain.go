// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Drainer takes pods off nodes; package disruption/drain has one.
type Drainer interface {
	// Drain does what is next for the node's pods and says how far it is. The node is tainted already. At the deadline, if
	// there is one, nothing is waited for any more.
	Drain(ctx context.Context, claim *karpv1.NodeClaim, node *corev1.Node, deadline *time.Time) (Drainage, error)
	// Attached names the volume attachments that end when the node's pods have left.
	Attached(ctx context.Context, node *corev1.Node) ([]string, error)
}

// Drainage is how far a drain is.
type Drainage struct {
	// Left is how many pods have to leave and are still there.
	Left int
	// Blocker is a reason in CamelCase why some of them don't, empty if all are under way, and Message says which, why and since when;
	// without a Blocker it tells of pods that take long to stop, empty if none does.
	Blocker, Message string
	// Again is when to ask again at the latest.
	Again time.Duration
}

// detachTimeout is how long attachments are waited for on a node without a deadline. kube-controller-manager detaches by force
// after six minutes from a node that is gone; to keep the node longer would gain nothing.
const detachTimeout = 6 * time.Minute

// empty takes the claim's registered Nodes out of service, drains them and waits for their volumes. It returns how long to
// wait for more to happen, 0 if the instance may go.
func (r *Reconciler) empty(ctx context.Context, claim *karpv1.NodeClaim, nodes []corev1.Node, deadline *time.Time) (time.Duration, error) {
	var registered []*corev1.Node
	for i := range nodes {
		if controllerutil.ContainsFinalizer(&nodes[i], karpv1.TerminationFinalizer) {
			registered = append(registered, &nodes[i])
		}
	}
	if len(registered) == 0 {
		return 0, nil
	}
	if wait, err := r.drain(ctx, claim, registered, deadline); wait > 0 || err != nil {
		return wait, err
	}
	return r.detach(ctx, claim, registered, deadline)
}

// drain empties the Nodes of pods and keeps the condition Drained: Unknown while it moves (Karpenter's), False with the
// reason while something blocks it.
func (r *Reconciler) drain(ctx context.Context, claim *karpv1.NodeClaim, nodes []*corev1.Node, deadline *time.Time) (time.Duration, error) {
	conditions := r.conditions(claim)
	if conditions.Get(karpv1.ConditionTypeDrained).IsTrue() {
		return 0, nil
	}
	var all Drainage
	for _, node := range nodes {
		if err := r.outOfService(ctx, node); err != nil {
			return 0, err
		}
		one, err := r.Drainer.Drain(ctx, claim, node, deadline)
		if err != nil {
			return 0, err
		}
		if all.Left == 0 || one.Left > 0 && one.Again < all.Again {
			all.Again = one.Again
		}
		if all.Blocker == "" && one.Message != "" {
			all.Blocker, all.Message = one.Blocker, one.Message
		}
		all.Left += one.Left
	}
	switch {
	case all.Blocker != "":
		conditions.SetFalse(karpv1.ConditionTypeDrained, all.Blocker, all.Message)
		return all.Again, nil
	case all.Left > 0 || conditions.Get(karpv1.ConditionTypeDrained) == nil:
		conditions.SetUnknownWithReason(karpv1.ConditionTypeDrained, "Draining", cmp.Or(all.Message, "Draining"))
	}
	switch began := conditions.Get(karpv1.ConditionTypeDrained).LastTransitionTime.Time; {
	case all.Left > 0:
		return all.Again, nil
	case r.Clock.Since(began) < r.MinDrain:
		return r.MinDrain - r.Clock.Since(began), nil
	}
	conditions.SetTrue(karpv1.ConditionTypeDrained)
	r.Metrics.NodesDrained.WithLabelValues(claim.Labels[karpv1.NodePoolLabelKey]).Add(float64(len(nodes)))
	return 0, nil
}

// detach waits until the volumes of the pods that have left are detached: an instance that is terminated before leaves
// attachments behind that keep the next node from mounting for minutes.
func (r *Reconciler) detach(ctx context.Context, claim *karpv1.NodeClaim, nodes []*corev1.Node, deadline *time.Time) (time.Duration, error) {
	conditions := r.conditions(claim)
	before := conditions.Get(karpv1.ConditionTypeVolumesDetached)
	if before.IsTrue() || before.IsFalse() {
		return 0, nil
	}
	var attached []string
	for _, node := range nodes {
		names, err := r.Drainer.Attached(ctx, node)
		if err != nil {
			return 0, err
		}
		attached = append(attached, names...)
	}
	now := r.Clock.Now()
	switch {
	case len(attached) == 0:
		conditions.SetTrue(karpv1.ConditionTypeVolumesDetached)
		return 0, nil
	case deadline != nil && !now.Before(*deadline):
		conditions.SetFalse(karpv1.ConditionTypeVolumesDetached, "TerminationGracePeriodElapsed", "TerminationGracePeriodElapsed")
		return 0, nil
	case before != nil && now.Sub(before.LastTransitionTime.Time) >= detachTimeout:
		conditions.SetFalse(karpv1.ConditionTypeVolumesDetached, "DetachTimeout",
			fmt.Sprintf("VolumeAttachments %s are still there after %s", shortList(attached), detachTimeout))
		return 0, nil
	}
	still := fmt.Sprintf("VolumeAttachments %s are still there", shortList(attached))
	if conditions.SetUnknownWithReason(karpv1.ConditionTypeVolumesDetached, "AwaitingVolumeDetachment", still) {
		r.Events.Eventf(nodes[0], nil, corev1.EventTypeNormal, "AwaitingVolumeDetachment", "Detach", "Awaiting deletion of bound volumeattachments (%s)", shortList(attached))
	}
	return time.Second, nil
}

// shortList names the first few.
func shortList(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// podLeaves passes on pods that leave their node: deleted ones and those that end.
func podLeaves() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*corev1.Pod)
			after, ok2 := e.ObjectNew.(*corev1.Pod)
			return ok1 && ok2 && before.Status.Phase != after.Status.Phase &&
				(after.Status.Phase == corev1.PodSucceeded || after.Status.Phase == corev1.PodFailed)
		},
	}
}

// claimsOfLeavingPod maps a pod that leaves to the claims of its node, if that is being drained.
func (r *Reconciler) claimsOfLeavingPod(ctx context.Context, o client.Object) []reconcile.Request {
	p, ok := o.(*corev1.Pod)
	if !ok || p.Spec.NodeName == "" {
		return nil
	}
	var node corev1.Node
	if err := r.Kube.Get(ctx, types.NamespacedName{Name: p.Spec.NodeName}, &node); err != nil {
		if !apierrors.IsNotFound(err) {
			log.FromContext(ctx).Error(err, "reading the node of a pod", "pod", client.ObjectKeyFromObject(p).String())
		}
		return nil
	}
	if node.DeletionTimestamp == nil {
		return nil
	}
	return r.claimsOfNode(ctx, &node)
}
