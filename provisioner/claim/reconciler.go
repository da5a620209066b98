// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// Cloud describes and terminates instances. Errors carry a capacity.Kind.
type Cloud interface {
	// Describe returns the instances that EC2 knows; kind NotFound if it does not know one of them.
	Describe(ctx context.Context, ids []string) ([]ec2.Instance, error)
	DescribeByTag(ctx context.Context, key string, values []string) ([]ec2.Instance, error)
	// Terminate gives instances back; unknown ones are no error.
	Terminate(ctx context.Context, ids []string) error
}

// Events records events; events.EventRecorder is one.
type Events interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Options are what the reconcilers need. Kube, Cloud, Events and, for [Reconciler], Drainer are required.
type Options struct {
	// Kube reads from a cache that has the fields of [AddIndexes]; Live reads from the API server (Kube if nil).
	Kube    client.Client
	Live    client.Reader
	Cloud   Cloud
	Drainer Drainer
	Events  Events
	Clock   clock.Clock
	// Metrics are registered by whoever builds the process; nil makes unregistered ones.
	Metrics *Metrics
	// LaunchTimeout and RegistrationTimeout end claims that do not get that far; Karpenter's 5 and 15 minutes if 0.
	LaunchTimeout, RegistrationTimeout time.Duration
	// InitializationTimeout ends claims whose node registers and does not become usable, counted from its registration, unless
	// [InitializationTimeoutAnnotation] says otherwise; 15 minutes if 0.
	InitializationTimeout time.Duration
	// MinDrain is how long a node stays after its taint before its instance goes, so that a pod a scheduler was binding
	// meanwhile is seen and evicted; Karpenter's 5 seconds if 0.
	MinDrain time.Duration
	// Poll is how often EC2 is asked whether a terminated instance is gone; 2 seconds if 0.
	Poll time.Duration
	// OrphanAge is how old an instance without a claim has to be to be ended; Karpenter's 30 seconds if 0.
	OrphanAge time.Duration
	// CollectEvery is the period of [Collector]; 10 seconds if 0.
	CollectEvery time.Duration
	// Workers is how many claims are reconciled at once; 50 if 0.
	Workers int
}

func (o Options) withDefaults() Options {
	o.LaunchTimeout = cmp.Or(o.LaunchTimeout, 5*time.Minute)
	o.RegistrationTimeout = cmp.Or(o.RegistrationTimeout, 15*time.Minute)
	o.InitializationTimeout = cmp.Or(o.InitializationTimeout, 15*time.Minute)
	o.MinDrain = cmp.Or(o.MinDrain, 5*time.Second)
	o.Poll = cmp.Or(o.Poll, 2*time.Second)
	o.OrphanAge = cmp.Or(o.OrphanAge, 30*time.Second)
	o.CollectEvery = cmp.Or(o.CollectEvery, 10*time.Second)
	o.Workers = cmp.Or(o.Workers, 50)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	if o.Live == nil {
		o.Live = o.Kube
	}
	return o
}

// Reconciler takes claims through their life.
type Reconciler struct{ Options }

// New returns a reconciler.
func New(o Options) *Reconciler { return &Reconciler{o.withDefaults()} }

// SetupWithManager registers the reconciler: claims, and the Nodes and pods that concern them.
func (r *Reconciler) SetupWithManager(m ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(m).
		Named("nodeclaim").
		For(&karpv1.NodeClaim{}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.claimsOfNode)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.claimsOfLeavingPod), builder.WithPredicates(podLeaves())).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers}).
		Complete(r)
}

// claimsOfNode maps a Node to the claims with its provider id.
func (r *Reconciler) claimsOfNode(ctx context.Context, o client.Object) []reconcile.Request {
	node, ok := o.(*corev1.Node)
	if !ok || node.Spec.ProviderID == "" {
		return nil
	}
	var claims karpv1.NodeClaimList
	if err := r.Kube.List(ctx, &claims, client.MatchingFields{fieldClaimProviderID: node.Spec.ProviderID}, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "listing the claims of a node", "node", node.Name)
		return nil
	}
	var out []reconcile.Request
	for i := range claims.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&claims.Items[i])})
	}
	return out
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim := &karpv1.NodeClaim{}
	if err := r.Kube.Get(ctx, req.NamespacedName, claim); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !capacity.Managed(claim.Spec.NodeClassRef) {
		return reconcile.Result{}, nil
	}
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("nodeClaim", claim.Name))
	result, err := r.live(ctx, claim)
	if apierrors.IsConflict(err) {
		// The cache is behind; the write it is waiting for brings another event, and this is for the case that it does not.
		return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	return result, client.IgnoreNotFound(err)
}

func (r *Reconciler) live(ctx context.Context, claim *karpv1.NodeClaim) (reconcile.Result, error) {
	if claim.DeletionTimestamp != nil {
		return r.finalize(ctx, claim)
	}
	if claim.Status.ProviderID == "" {
		return r.awaitLaunch(ctx, claim)
	}
	if err := r.addFinalizer(ctx, claim); err != nil {
		return reconcile.Result{}, err
	}
	before := claim.DeepCopy()
	node, err := r.register(ctx, claim)
	if err == nil && node != nil {
		if err = r.initialize(ctx, claim, node); err == nil {
			r.checkConsistency(claim, node)
		}
	}
	if werr := r.writeStatus(ctx, before, claim); err == nil {
		err = werr
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	r.observe(ctx, before, claim)
	return r.awaitRegistration(ctx, claim)
}

// addFinalizer adds the finalizer to a claim whose author left it out.
func (r *Reconciler) addFinalizer(ctx context.Context, claim *karpv1.NodeClaim) error {
	before := claim.DeepCopy()
	if !controllerutil.AddFinalizer(claim, karpv1.TerminationFinalizer) {
		return nil
	}
	if err := r.Kube.Patch(ctx, claim, locked(before)); err != nil {
		return fmt.Errorf("adding the finalizer to NodeClaim %q: %w", claim.Name, err)
	}
	return nil
}

// writeStatus patches the status if it has changed.
func (r *Reconciler) writeStatus(ctx context.Context, before, claim *karpv1.NodeClaim) error {
	if equality.Semantic.DeepEqual(before.Status, claim.Status) {
		return nil
	}
	if err := r.Kube.Status().Patch(ctx, claim, locked(before)); err != nil {
		return fmt.Errorf("patching the status of NodeClaim %q: %w", claim.Name, err)
	}
	return nil
}

// observe logs and counts what a reconcile has achieved, once the status says so.
func (r *Reconciler) observe(ctx context.Context, before, claim *karpv1.NodeClaim) {
	became := func(condition string) bool {
		return claim.StatusConditions().Get(condition).IsTrue() && !before.StatusConditions().Get(condition).IsTrue()
	}
	if became(karpv1.ConditionTypeRegistered) {
		r.Metrics.NodesCreated.WithLabelValues(claim.Labels[karpv1.NodePoolLabelKey], claim.Labels[corev1.LabelTopologyZone]).Inc()
		log.FromContext(ctx).Info("registered", "node", claim.Status.NodeName)
	}
	if became(karpv1.ConditionTypeInitialized) {
		log.FromContext(ctx).Info("initialized", "node", claim.Status.NodeName)
	}
}

func (r *Reconciler) conditions(claim *karpv1.NodeClaim) status.ConditionSet {
	return claim.StatusConditions(status.WithClock(r.Clock))
}

// locked is a merge patch that fails if somebody else has written since: it replaces lists as a whole.
func locked(before client.Object) client.Patch {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}
