// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// observeAfter gathers the nodes of a burst before they are looked at: the burst is one write and not one a node.
const observeAfter = 2 * time.Second

// ObserveReconciler writes what the nodes of a class turned out to have into its annotation, where the catalogue of the
// class finds it in place of what is computed: a node that comes out smaller than computed is bought in vain once.
type ObserveReconciler struct {
	Kube client.Client
}

// SetupWithManager registers the reconciler: claims whose nodes have everything they will have.
func (r *ObserveReconciler) SetupWithManager(m ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(m).
		Named("nodeclass.observe").
		Watches(&karpv1.NodeClaim{}, observeLater()).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, RateLimiter: controllerOptions().RateLimiter}).
		Complete(r)
}

// observeLater asks for the class of a claim that is initialized, or has just become so, a moment later.
func observeLater() handler.Funcs {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	later := func(o client.Object, q queue) {
		claim, ok := o.(*karpv1.NodeClaim)
		if ok && initialized(claim) && capacity.Managed(claim.Spec.NodeClassRef) {
			q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: claim.Spec.NodeClassRef.Name}}, observeAfter)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { later(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if old, ok := e.ObjectOld.(*karpv1.NodeClaim); !ok || !initialized(old) {
				later(e.ObjectNew, q)
			}
		},
	}
}

// initialized reports whether the claim's node has reported all its resources. It reads the conditions as they are: asking
// for them through the API package would change an object of the cache.
func initialized(c *karpv1.NodeClaim) bool {
	for _, cond := range c.Status.Conditions {
		if cond.Type == karpv1.ConditionTypeInitialized {
			return cond.IsTrue()
		}
	}
	return false
}

// Reconcile implements reconcile.Reconciler.
func (r *ObserveReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	class := &v1.EC2NodeClass{}
	if err := r.Kube.Get(ctx, req.NamespacedName, class); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	claims, err := claimsOf(ctx, r.Kube, class.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	seen := ec2.ObservedOf(class)
	for i := range claims {
		if !makesNow(class, &claims[i]) {
			continue
		}
		node := &corev1.Node{}
		if err := r.Kube.Get(ctx, types.NamespacedName{Name: claims[i].Status.NodeName}, node); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return reconcile.Result{}, fmt.Errorf("reading node %q: %w", claims[i].Status.NodeName, err)
			}
			continue
		}
		seen.Add(claims[i].Labels[corev1.LabelInstanceTypeStable], node)
	}
	text := seen.String()
	if text == "" || text == class.Annotations[ec2.AnnotationObserved] {
		return reconcile.Result{}, nil
	}
	stored := class.DeepCopy()
	setAnnotations(class, map[string]string{ec2.AnnotationObserved: text})
	return reconcile.Result{}, client.IgnoreNotFound(r.Kube.Patch(ctx, class, client.MergeFrom(stored)))
}

// makesNow reports whether the claim's node is one like those the class makes now: of the same spec and of one of its images.
func makesNow(class *v1.EC2NodeClass, claim *karpv1.NodeClaim) bool {
	hash := class.Annotations[v1.AnnotationEC2NodeClassHash]
	return initialized(claim) && claim.Status.NodeName != "" && claim.Labels[corev1.LabelInstanceTypeStable] != "" &&
		hash != "" && claim.Annotations[v1.AnnotationEC2NodeClassHash] == hash &&
		slices.ContainsFunc(class.Status.AMIs, func(a v1.AMI) bool { return a.ID == claim.Status.ImageID })
}
