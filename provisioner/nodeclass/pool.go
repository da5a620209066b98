// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Reasons of a pool's conditions, Karpenter's.
const (
	reasonPoolInvalid      = "NodePoolValidationFailed"
	reasonClassNotFound    = "NodeClassNotFound"
	reasonClassTerminating = "NodeClassTerminating"
	reasonClassUnknown     = "NodeClassReadinessUnknown"
)

// conditionAnnotations is False, with reasonAnnotation, on a pool with annotations of Slipway's that cannot be read, and
// absent otherwise. Ready does not depend on it: the pool works with what holds in their place.
const (
	conditionAnnotations = "AnnotationsValid"
	reasonAnnotation     = "InvalidAnnotation"
)

// countAfter gathers the changes of a pool's claims before its nodes are counted again: a burst of launches is
// one write and not one a claim.
const countAfter = time.Second

// PoolReconciler keeps the conditions and counts of NodePools.
type PoolReconciler struct {
	Kube   client.Client
	Events Events
	Clock  clock.Clock
	// Rules judge what was applied past admission; nil for not at all.
	Rules *Rulebook
}

// SetupWithManager registers the reconciler: pools, the classes they refer to, and the claims they count.
func (r *PoolReconciler) SetupWithManager(m ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(m).
		Named("nodepool").
		For(&karpv1.NodePool{}).
		Watches(&v1.EC2NodeClass{}, handler.EnqueueRequestsFromMapFunc(r.poolsOfClass)).
		Watches(&karpv1.NodeClaim{}, countLater()).
		WithOptions(controllerOptions()).
		Complete(r)
}

func (r *PoolReconciler) poolsOfClass(ctx context.Context, o client.Object) []reconcile.Request {
	var pools karpv1.NodePoolList
	if err := r.Kube.List(ctx, &pools); err != nil {
		log.FromContext(ctx).Error(err, "listing the pools of a node class", "nodeClass", o.GetName())
		return nil
	}
	var out []reconcile.Request
	for _, p := range pools.Items {
		if ref := p.Spec.Template.Spec.NodeClassRef; capacity.Managed(ref) && ref.Name == o.GetName() {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: p.Name}})
		}
	}
	return out
}

// countLater asks for the count of a claim's pool a moment later; the queue holds a pool once, however often it is asked for.
func countLater() handler.Funcs {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	later := func(o client.Object, q queue) {
		if pool := o.GetLabels()[karpv1.NodePoolLabelKey]; pool != "" {
			q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: pool}}, countAfter)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { later(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { later(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { later(e.Object, q) },
	}
}

// Reconcile implements reconcile.Reconciler: 1 hash, 2 conditions and counts, 3 one status write.
func (r *PoolReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pool := &karpv1.NodePool{}
	if err := r.Kube.Get(ctx, req.NamespacedName, pool); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !capacity.Managed(pool.Spec.Template.Spec.NodeClassRef) {
		return reconcile.Result{}, nil
	}
	err := r.reconcile(ctx, pool)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: retryFirst}, nil
	}
	if err == nil && r.Rules != nil {
		return reconcile.Result{RequeueAfter: wait.Jitter(rulesEvery, jitter)}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

func (r *PoolReconciler) reconcile(ctx context.Context, pool *karpv1.NodePool) error {
	var claims karpv1.NodeClaimList
	if err := r.Kube.List(ctx, &claims, client.MatchingLabels{karpv1.NodePoolLabelKey: pool.Name}); err != nil {
		return fmt.Errorf("listing the claims of node pool %q: %w", pool.Name, err)
	}
	if err := r.stamp(ctx, pool, claims.Items); err != nil {
		return err
	}
	stored := pool.DeepCopy()
	conditions := pool.StatusConditions(status.WithClock(r.Clock))
	if err := pool.RuntimeValidate(ctx); err != nil {
		conditions.SetFalse(karpv1.ConditionTypeValidationSucceeded, reasonPoolInvalid, err.Error())
	} else {
		conditions.SetTrue(karpv1.ConditionTypeValidationSucceeded)
	}
	if err := r.judgeClass(ctx, pool, conditions); err != nil {
		return err
	}
	news, err := judgeAnnotations(pool, conditions)
	if err != nil {
		return err
	}
	if err := r.count(ctx, pool, claims.Items); err != nil {
		return err
	}
	if r.Rules != nil {
		if err := r.Rules.judgePool(ctx, r.Kube, pool); err != nil {
			return err
		}
	}
	if equality.Semantic.DeepEqual(stored.Status, pool.Status) {
		return nil
	}
	if err := r.Kube.Status().Patch(ctx, pool, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	if news != "" {
		r.Events.Eventf(pool, nil, corev1.EventTypeWarning, reasonAnnotation, "Validate", "%s", news)
	}
	return nil
}

// judgeAnnotations says which annotations cannot be read. news is what has not been said before, empty if nothing.
func judgeAnnotations(pool *karpv1.NodePool, conditions status.ConditionSet) (news string, err error) {
	message := strings.Join(capacity.ParsePoolAnnotations(pool.Annotations).Problems, "; ")
	if message == "" {
		if err := conditions.Clear(conditionAnnotations); err != nil {
			return "", fmt.Errorf("clearing condition %s of node pool %q: %w", conditionAnnotations, pool.Name, err)
		}
		return "", nil
	}
	if known := conditions.Get(conditionAnnotations); known == nil || known.Message != message {
		news = message
	}
	conditions.SetFalse(conditionAnnotations, reasonAnnotation, message)
	return news, nil
}

func (r *PoolReconciler) stamp(ctx context.Context, pool *karpv1.NodePool, claims []karpv1.NodeClaim) error {
	hash := pool.Hash()
	if pool.Annotations[karpv1.NodePoolHashVersionAnnotationKey] != karpv1.NodePoolHashVersion {
		s := stamp{karpv1.NodePoolHashAnnotationKey, karpv1.NodePoolHashVersionAnnotationKey, hash, karpv1.NodePoolHashVersion}
		if err := restamp(ctx, r.Kube, claims, s); err != nil {
			return err
		}
	}
	stored := pool.DeepCopy()
	setAnnotations(pool, map[string]string{
		karpv1.NodePoolHashAnnotationKey: hash, karpv1.NodePoolHashVersionAnnotationKey: karpv1.NodePoolHashVersion,
	})
	if equality.Semantic.DeepEqual(stored.Annotations, pool.Annotations) {
		return nil
	}
	if err := r.Kube.Patch(ctx, pool, client.MergeFrom(stored)); err != nil {
		return fmt.Errorf("stamping node pool %q: %w", pool.Name, err)
	}
	return nil
}

// judgeClass says whether the pool's class can be bought from, and if not, names it and what is wrong with it.
func (r *PoolReconciler) judgeClass(ctx context.Context, pool *karpv1.NodePool, conditions status.ConditionSet) error {
	name := pool.Spec.Template.Spec.NodeClassRef.Name
	class := &v1.EC2NodeClass{}
	err := r.Kube.Get(ctx, types.NamespacedName{Name: name}, class)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading node class %q: %w", name, err)
	}
	var reason, message string
	ready := readyCondition(class)
	switch {
	case err != nil:
		reason, message = reasonClassNotFound, fmt.Sprintf("%s %q does not exist", capacity.ClassKind, name)
	case !class.DeletionTimestamp.IsZero():
		reason, message = reasonClassTerminating, fmt.Sprintf("%s %q is being deleted", capacity.ClassKind, name)
	case ready.IsTrue():
		conditions.SetTrue(karpv1.ConditionTypeNodeClassReady)
		return nil
	case ready.IsFalse():
		reason, message = ready.Reason, fmt.Sprintf("%s %q is not ready: %s", capacity.ClassKind, name, complaints(class))
	default:
		reason, message = reasonClassUnknown, fmt.Sprintf("%s %q is not ready yet: %s", capacity.ClassKind, name, complaints(class))
	}
	conditions.SetFalse(karpv1.ConditionTypeNodeClassReady, reason, message)
	return nil
}

// readyCondition reads the class without adding the conditions it lacks.
func readyCondition(class *v1.EC2NodeClass) *status.Condition {
	return class.StatusConditions(status.WithObservedOnly()).Root()
}

// complaints are the conditions of a class that are not True, each with its message.
func complaints(class *v1.EC2NodeClass) string {
	var out []string
	for _, c := range class.Status.Conditions {
		if c.Type == status.ConditionReady || c.IsTrue() {
			continue
		}
		text := fmt.Sprintf("%s=%s", c.Type, c.Status)
		if c.Message != "" {
			text += " (" + c.Message + ")"
		}
		out = append(out, text)
	}
	if len(out) == 0 {
		return "it has not been looked at"
	}
	return strings.Join(out, ", ")
}
