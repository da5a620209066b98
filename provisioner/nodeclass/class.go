// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"
	"fmt"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// Network finds what classes select of the network.
type Network interface {
	Subnets(ctx context.Context, terms []v1.SubnetSelectorTerm) ([]ec2.Subnet, error)
	SecurityGroups(ctx context.Context, terms []v1.SecurityGroupSelectorTerm) ([]ec2.SecurityGroup, error)
}

// Images finds the images classes select, and what their nodes have to know of the cluster.
type Images interface {
	Images(ctx context.Context, class *v1.EC2NodeClass) ([]ec2.Image, error)
	Cluster(ctx context.Context) (ec2.Cluster, error)
}

// Profiles makes and deletes the instance profiles of classes.
type Profiles interface {
	EnsureInstanceProfile(ctx context.Context, class *v1.EC2NodeClass) (string, error)
	DeleteInstanceProfiles(ctx context.Context, class *v1.EC2NodeClass) error
}

// Reserved finds the capacity reservations and placement groups classes select.
type Reserved interface {
	CapacityReservations(ctx context.Context, terms []v1.CapacityReservationSelectorTerm) ([]ec2.Reservation, error)
	PlacementGroup(ctx context.Context, s *v1.PlacementGroupSelector) (ec2.PlacementGroup, error)
}

// Launches says whether EC2 would let instances of a class be launched.
type Launches interface {
	CheckLaunch(ctx context.Context, class *v1.EC2NodeClass) error
}

// Templates lists and deletes launch templates.
type Templates interface {
	Templates(ctx context.Context) ([]ec2.StoredTemplate, error)
	DeleteTemplate(ctx context.Context, name string) error
}

// Events records events; events.EventRecorder is one.
type Events interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

const (
	// refreshEvery is how often subnets are looked up again, resolveEvery everything else (Karpenter's intervals).
	refreshEvery = time.Minute
	resolveEvery = 5 * time.Minute
	// waitingEvery is how often a class that waits for its claims says so.
	waitingEvery = 10 * time.Minute
	jitter       = 0.1

	// retryFirst and retryMost bound the pause after a reconcile that failed.
	retryFirst = 100 * time.Millisecond
	retryMost  = time.Minute
	workers    = 10
)

// ClassReconciler resolves EC2NodeClasses.
type ClassReconciler struct {
	Kube      client.Client
	Network   Network
	Images    Images
	Profiles  Profiles
	Reserved  Reserved
	Templates Templates
	// Launches is nil if this process is not to ask (dry runs disabled, or LaunchesElsewhere).
	Launches Launches
	// LaunchesElsewhere says that a [LaunchChecker] in the process that launches asks EC2.
	LaunchesElsewhere bool
	Events            Events
	Clock             clock.Clock
	// Live reads classes as they are stored; nil for not looking at keys that the API package does not know.
	Live client.Reader
	// CABundle is the cluster's certificate authority as it goes into the hash drift is judged by: base64, nil if unknown.
	CABundle *string
	// Rules judge what was applied past admission; nil for not at all.
	Rules *Rulebook

	resolved memory
	allowed  permits
}

// SetupWithManager registers the reconciler: classes, the end of claims that keep a class from being deleted, and the specs of
// pools, whose architectures its images have to have.
func (r *ClassReconciler) SetupWithManager(m ctrl.Manager) error {
	ended := predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	return ctrl.NewControllerManagedBy(m).
		Named("nodeclass").
		// A change of nothing but the status is this reconciler's own, but for what the process that launches says.
		For(&v1.EC2NodeClass{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{}, toldOtherwise()))).
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(classOfClaim), builder.WithPredicates(ended)).
		Watches(&karpv1.NodePool{}, handler.EnqueueRequestsFromMapFunc(classOfPool), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controllerOptions()).
		Complete(r)
}

// toldOtherwise passes changes of what the process that launches was answered.
func toldOtherwise() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*v1.EC2NodeClass)
			after, ok2 := e.ObjectNew.(*v1.EC2NodeClass)
			return ok1 && ok2 && !equality.Semantic.DeepEqual(authorized(before), authorized(after))
		},
	}
}

func controllerOptions() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryMost),
	}
}

func classOfClaim(_ context.Context, o client.Object) []reconcile.Request {
	claim, ok := o.(*karpv1.NodeClaim)
	if !ok || !capacity.Managed(claim.Spec.NodeClassRef) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: claim.Spec.NodeClassRef.Name}}}
}

// Reconcile implements reconcile.Reconciler.
func (r *ClassReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	class := &v1.EC2NodeClass{}
	if err := r.Kube.Get(ctx, req.NamespacedName, class); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("nodeClass", class.Name))
	var result reconcile.Result
	var err error
	if class.DeletionTimestamp.IsZero() {
		result, err = r.live(ctx, class)
	} else {
		result, err = r.ending(ctx, class)
	}
	if apierrors.IsConflict(err) {
		// The cache is behind; whoever wrote before us has brought an event, or will.
		return reconcile.Result{RequeueAfter: retryFirst}, nil
	}
	return result, err
}

// live brings a class up to date: 1 finalizer and hash, 2 what it selects and whether it is valid, 3 one status write, after
// one of annotations where the status has no field.
func (r *ClassReconciler) live(ctx context.Context, class *v1.EC2NodeClass) (reconcile.Result, error) {
	if err := r.stamp(ctx, class); err != nil {
		return reconcile.Result{}, err
	}
	stored := class.DeepCopy()
	failed := r.resolve(ctx, class)
	if r.Rules != nil {
		if err := r.Rules.judgeClass(ctx, r.Kube, class); err != nil {
			return reconcile.Result{}, err
		}
	}
	if err := r.annotate(ctx, class, stored); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !equality.Semantic.DeepEqual(stored.Status, class.Status) {
		// The lock: conditions are a list, and a patch replaces lists whole.
		patch := client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})
		if err := r.Kube.Status().Patch(ctx, class, patch); err != nil {
			r.resolved.forget(class.UID)
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	}
	if failed != nil {
		return reconcile.Result{}, failed
	}
	return reconcile.Result{RequeueAfter: nextLook(class, r.Clock.Now(), wait.Jitter(refreshEvery, jitter))}, nil
}

// annotate writes annotations that resolving has changed; stored is brought up to what the API server has then.
func (r *ClassReconciler) annotate(ctx context.Context, class, stored *v1.EC2NodeClass) error {
	if equality.Semantic.DeepEqual(stored.Annotations, class.Annotations) {
		return nil
	}
	changed := stored.DeepCopy()
	changed.Annotations = class.Annotations
	if err := r.Kube.Patch(ctx, changed, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
		r.resolved.forget(class.UID)
		return err
	}
	stored.ResourceVersion, stored.Annotations = changed.ResourceVersion, changed.Annotations
	class.ResourceVersion, class.Annotations = changed.ResourceVersion, changed.Annotations
	return nil
}

// stamp puts finalizer and hash on the class, in one write.
func (r *ClassReconciler) stamp(ctx context.Context, class *v1.EC2NodeClass) error {
	stored := class.DeepCopy()
	controllerutil.AddFinalizer(class, v1.TerminationFinalizer)
	// The API package ends the process when it hashes a class whose alias it cannot read.
	if _, err := ec2.Family(class); err == nil {
		hash := class.Hash(r.CABundle)
		if class.Annotations[v1.AnnotationEC2NodeClassHashVersion] != v1.EC2NodeClassHashVersion {
			if err := r.stampClaims(ctx, class, hash); err != nil {
				return err
			}
		}
		setAnnotations(class, map[string]string{
			v1.AnnotationEC2NodeClassHash: hash, v1.AnnotationEC2NodeClassHashVersion: v1.EC2NodeClassHashVersion,
		})
	}
	if equality.Semantic.DeepEqual(stored.ObjectMeta, class.ObjectMeta) {
		return nil
	}
	if err := r.Kube.Patch(ctx, class, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("stamping node class %q: %w", class.Name, err)
	}
	return nil
}

func (r *ClassReconciler) stampClaims(ctx context.Context, class *v1.EC2NodeClass, hash string) error {
	claims, err := claimsOf(ctx, r.Kube, class.Name)
	if err != nil {
		return err
	}
	return restamp(ctx, r.Kube, claims, stamp{v1.AnnotationEC2NodeClassHash, v1.AnnotationEC2NodeClassHashVersion, hash, v1.EC2NodeClassHashVersion})
}
