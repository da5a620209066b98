// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// stuckTerminating is how long after its grace period a pod that is being deleted is still waited for (Karpenter's
// IsStuckTerminating).
const stuckTerminating = time.Minute

// drain asks every pod that has to leave the Node to do so and returns how many are still there. Pods leave by the Eviction
// API, which keeps disruption budgets; after the deadline, less what is their own grace period, they are deleted.
func (r *Reconciler) drain(ctx context.Context, node *corev1.Node, deadline *time.Time) (int, error) {
	pods, err := podsOn(ctx, r.Kube, node.Name)
	if err != nil {
		return 0, err
	}
	leaving := slices.DeleteFunc(pods, func(p corev1.Pod) bool { return !r.hasToLeave(&p) })
	if len(leaving) == 0 {
		// The cache may not have seen a pod that was bound just before the taint; the API server has.
		if pods, err = podsOn(ctx, r.Live, node.Name); err != nil {
			return 0, err
		}
		leaving = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return !r.hasToLeave(&p) })
	}
	refused := ""
	for i := range leaving {
		why, err := r.remove(ctx, &leaving[i], deadline)
		if err != nil {
			return 0, err
		}
		if why != "" {
			refused = why
		}
	}
	if refused != "" {
		r.Events.Eventf(node, nil, corev1.EventTypeWarning, "FailedDraining", "Drain", "Failed to drain node, %d pods are waiting to be evicted, one of them because %s", len(leaving), refused)
	}
	return len(leaving), nil
}

func podsOn(ctx context.Context, kube client.Reader, node string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := kube.List(ctx, &pods, client.MatchingFields{fieldPodNodeName: node}); err != nil {
		return nil, fmt.Errorf("listing the pods of node %q: %w", node, err)
	}
	return pods.Items, nil
}

// hasToLeave reports whether the node has to wait for the pod: not for pods that have ended, belong to the node (mirror pods)
// or to a daemonset, tolerate the disrupted taint, or have outstayed their deletion.
func (r *Reconciler) hasToLeave(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	if owner := metav1.GetControllerOf(p); owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "Node") {
		return false
	}
	if p.DeletionTimestamp != nil && r.Clock.Since(p.DeletionTimestamp.Time) > stuckTerminating {
		return false
	}
	return !toleratesDisruption(p)
}

func toleratesDisruption(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool {
		return (t.Key == karpv1.DisruptedTaintKey || (t.Key == "" && t.Operator == corev1.TolerationOpExists)) &&
			(t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule)
	})
}

// remove evicts a pod, or deletes it when its time is up, and says why it stays if it does.
func (r *Reconciler) remove(ctx context.Context, p *corev1.Pod, deadline *time.Time) (refused string, err error) {
	if deadline != nil {
		grace := time.Duration(ptr.Deref(p.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)) * time.Second
		if now := r.Clock.Now(); !now.Before(deadline.Add(-grace)) && (p.DeletionTimestamp == nil || p.DeletionTimestamp.After(*deadline)) {
			// At least a second: 0 would take the pod out of the API before the kubelet has stopped it.
			seconds := max(int64(deadline.Sub(now).Seconds()), 1)
			err := r.Kube.Delete(ctx, p, client.GracePeriodSeconds(seconds), client.Preconditions{UID: new(p.UID)})
			if client.IgnoreNotFound(err) != nil {
				return "", fmt.Errorf("deleting pod %q: %w", client.ObjectKeyFromObject(p), err)
			}
			r.Events.Eventf(p, nil, corev1.EventTypeNormal, "Disrupted", "Delete", "Deleting the pod to accommodate the terminationTime %s of the node", deadline.Format(time.RFC3339))
			return "", nil
		}
	}
	if p.DeletionTimestamp != nil {
		return "", nil
	}
	if doNotDisrupt(p, r.Clock.Now()) {
		return fmt.Sprintf("pod %q has annotation %s", client.ObjectKeyFromObject(p), karpv1.DoNotDisruptAnnotationKey), nil
	}
	err = r.Kube.SubResource("eviction").Create(ctx, p, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(p.UID)}},
	})
	switch {
	case err == nil:
		r.Events.Eventf(p, nil, corev1.EventTypeNormal, "Evicted", "Evict", "Evicted pod: its node is being terminated")
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // gone, or another pod of that name by now
	case apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err): // a budget, or more than one of them
		return fmt.Sprintf("evicting pod %q is refused: %s", client.ObjectKeyFromObject(p), err), nil
	default:
		return "", fmt.Errorf("evicting pod %q: %w", client.ObjectKeyFromObject(p), err)
	}
	return "", nil
}

// doNotDisrupt reports whether the pod's do-not-disrupt annotation holds: "true", or a duration from its start on.
func doNotDisrupt(p *corev1.Pod, now time.Time) bool {
	v := p.Annotations[karpv1.DoNotDisruptAnnotationKey]
	if v == "true" {
		return true
	}
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		return false
	}
	return p.Status.StartTime == nil || now.Before(p.Status.StartTime.Add(d))
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
