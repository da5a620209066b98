// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package interruption

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// OnRebalanceAnnotation on a NodeClaim (set it in NodePool spec.template.metadata.annotations) with the value "replace"
// makes a rebalance recommendation count as an interruption. Without it the recommendation is an event only, as in Karpenter.
const OnRebalanceAnnotation = "slipway.sh/on-rebalance-recommendation"

// Fields the cache is indexed by. The pods' field is package claim's index.
const (
	fieldInstanceID  = "status.instanceID"
	fieldPodNodeName = "spec.nodeName"
	fieldReplaces    = "slipway.replaces"
)

// AddIndexes adds the fields the package's reads need beside those of package claim.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for field, of := range map[string]client.IndexerFunc{fieldInstanceID: InstanceIDOf, fieldReplaces: ReplacedBy} {
		if err := indexer.IndexField(ctx, &karpv1.NodeClaim{}, field, of); err != nil {
			return fmt.Errorf("indexing NodeClaims by %q: %w", field, err)
		}
	}
	return nil
}

// ReplacedBy is the index: the claims whose pods a NodeClaim was bought for.
func ReplacedBy(o client.Object) []string {
	names := o.GetAnnotations()[capacity.ReplacesAnnotation]
	if names == "" {
		return nil
	}
	return strings.Split(names, ",")
}

// InstanceIDOf is the index: the instance id of a launched NodeClaim.
func InstanceIDOf(o client.Object) []string {
	c, ok := o.(*karpv1.NodeClaim)
	if !ok || c.Status.ProviderID == "" {
		return nil
	}
	return []string{c.Status.ProviderID[strings.LastIndex(c.Status.ProviderID, "/")+1:]}
}

// Events records events; events.EventRecorder is one.
type Events interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Options are what a [Reactor] needs. Kube and Events are required.
type Options struct {
	// Kube reads from a cache that has the fields of [AddIndexes] and package claim's, and writes without a rate limit
	// that a thousand notices at once would exhaust.
	Kube   client.Client
	Events Events
	// Catalogs lets replacements in a storm be larger than what they replace; nil for never.
	Catalogs Catalogs
	Clock    clock.Clock
	// Disrupted counts deleted claims by reason, NodePool and capacity type (Karpenter's
	// karpenter_nodeclaims_disrupted_total); nil counts nothing.
	Disrupted *prometheus.CounterVec
	Metrics   *Metrics
}

// Reactor does what a notice asks for. Its methods are safe for concurrent use.
type Reactor struct {
	Options
	buyer *buyer
	// ends bounds the claims being ended at a time: in a storm of notices the API server is for the replacements first.
	ends chan struct{}

	mu sync.Mutex
	// reactions are those to claims, by the claim's UID, so that a notice that is delivered twice is answered once.
	reactions map[types.UID]*reaction
	swept     time.Time
}

// reaction is what is being done, or was done, about one claim.
type reaction struct {
	began time.Time
	done  chan struct{}
	err   error
}

// endings is how many claims are ended at a time; replacements are written [creates] at a time.
const endings = 8

// remembered is how long a reaction is known; after that the claim is long gone, or being deleted.
const remembered = 10 * time.Minute

// sweepEvery is how often those are forgotten that are older.
const sweepEvery = time.Minute

// New returns a reactor.
func New(o Options) *Reactor {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	return &Reactor{Options: o, buyer: newBuyer(o), ends: make(chan struct{}, endings), reactions: map[types.UID]*reaction{}}
}

// react deals with every claim the notice is about, all at the same time, so that they are replaced together, and reports
// whether there was any. Instances of others are none of its business.
func (r *Reactor) react(ctx context.Context, n notice) (ours bool, err error) {
	found, errs := make([]bool, len(n.instances)), make([]error, len(n.instances))
	var wg sync.WaitGroup
	for i, id := range n.instances {
		wg.Go(func() { found[i], errs[i] = r.instance(ctx, n, id) })
	}
	wg.Wait()
	return slices.Contains(found, true), errors.Join(errs...)
}

// instance reacts to what a notice says about one instance.
func (r *Reactor) instance(ctx context.Context, n notice, id string) (ours bool, err error) {
	var claims karpv1.NodeClaimList
	if err := r.Kube.List(ctx, &claims, client.MatchingFields{fieldInstanceID: id}); err != nil {
		return false, fmt.Errorf("listing the NodeClaims of instance %q: %w", id, err)
	}
	var errs []error
	for i := range claims.Items {
		if c := &claims.Items[i]; capacity.Managed(c.Spec.NodeClassRef) {
			ours = true
			errs = append(errs, r.once(ctx, n, c))
		}
	}
	return ours, errors.Join(errs...)
}

// ends reports whether the notice means that the node has to go.
func ends(kind Kind, c *karpv1.NodeClaim) bool {
	return kind != RebalanceRecommended || c.Annotations[OnRebalanceAnnotation] == "replace"
}

// once reacts to a claim unless that has been done, or is being done: then it waits for the outcome.
func (r *Reactor) once(ctx context.Context, n notice, c *karpv1.NodeClaim) error {
	if c.DeletionTimestamp != nil {
		return nil // on its way out already: our own doing, or an earlier notice
	}
	if !ends(n.kind, c) {
		r.tell(ctx, n.kind, c, nil)
		return nil
	}
	r.mu.Lock()
	now := r.Clock.Now()
	if known := r.reactions[c.UID]; known != nil {
		r.mu.Unlock()
		select {
		case <-known.done:
			return known.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if now.Sub(r.swept) > sweepEvery { // seldom: a thousand at once would look at one another
		r.swept = now
		maps.DeleteFunc(r.reactions, func(_ types.UID, old *reaction) bool { return now.Sub(old.began) > remembered })
	}
	mine := &reaction{began: now, done: make(chan struct{})}
	r.reactions[c.UID] = mine
	r.mu.Unlock()

	mine.err = r.end(ctx, n, c)
	if mine.err != nil {
		r.mu.Lock()
		delete(r.reactions, c.UID) // the next delivery tries again
		r.mu.Unlock()
	}
	close(mine.done)
	return mine.err
}

// end buys the replacement and then ends the claim.
func (r *Reactor) end(ctx context.Context, n notice, c *karpv1.NodeClaim) error {
	kind := n.kind
	node, err := r.nodeOf(ctx, c)
	if err != nil {
		return err
	}
	// 1. The replacement. What keeps it from being bought must not keep the node from being drained.
	names, err := r.buyer.replace(ctx, kind, c, node)
	if err != nil {
		log.FromContext(ctx).Error(err, "no replacement is bought ahead", "nodeClaim", c.Name)
		r.Metrics.Replacements.WithLabelValues("failed").Inc()
	}
	// 2. Events.
	r.tell(ctx, kind, c, node)
	// 3. The end of the old one. In a storm of notices the API server is for the replacements first.
	r.ends <- struct{}{}
	defer func() { <-r.ends }()
	r.buyer.calm()
	if err := r.annotate(ctx, c, r.lastWords(n, c, names)); err != nil {
		return err
	}
	if err := r.Kube.Delete(ctx, c, client.Preconditions{UID: new(c.UID)}); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return fmt.Errorf("deleting NodeClaim %q: %w", c.Name, err)
	}
	r.event(c, node, corev1.EventTypeWarning, "TerminatingOnInterruption", "Interruption triggered termination for the %s")
	if r.Disrupted != nil {
		r.Disrupted.WithLabelValues(string(kind), c.Labels[karpv1.NodePoolLabelKey], c.Labels[karpv1.CapacityTypeLabelKey]).Inc()
	}
	log.FromContext(ctx).Info("node is interrupted", "kind", string(kind), "nodeClaim", c.Name, "node", c.Status.NodeName, "replacements", names)
	return nil
}

// lead is how long before it takes an instance back EC2 says so (Spot and interruptible reservations).
const lead = 2 * time.Minute

// lastWords are the annotations the claim gets before it is deleted, for who drains it: that it is interrupted, which
// claims its pods wait for, and until when at most. The time is now where the machine does not work. Where no replacement says
// which offering is spent, it does.
func (r *Reactor) lastWords(n notice, c *karpv1.NodeClaim, replacements []string) map[string]string {
	out := map[string]string{capacity.InterruptedAnnotation: string(n.kind)}
	if len(replacements) > 0 {
		out[capacity.ReplacedByAnnotation] = strings.Join(replacements, ",")
	} else if spentOffering(n.kind) {
		out[capacity.AvoidAnnotation] = offeringOf(c).String()
	}
	if _, ok := c.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey]; ok {
		return out
	}
	now := r.Clock.Now()
	var deadline time.Time
	switch {
	case n.kind == InstanceStatus || n.kind == SystemStatus:
		deadline = now
	case !n.until.IsZero():
		deadline = n.until
	case spentOffering(n.kind) && n.at.IsZero():
		deadline = now.Add(lead)
	case spentOffering(n.kind):
		deadline = n.at.Add(lead)
	default:
		return out
	}
	if g := c.Spec.TerminationGracePeriod; g != nil && now.Add(g.Duration).Before(deadline) {
		deadline = now.Add(g.Duration)
	}
	out[karpv1.NodeClaimTerminationTimestampAnnotationKey] = deadline.UTC().Format(time.RFC3339)
	return out
}

func (r *Reactor) annotate(ctx context.Context, c *karpv1.NodeClaim, annotations map[string]string) error {
	if len(annotations) == 0 {
		return nil
	}
	before := c.DeepCopy()
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	maps.Copy(c.Annotations, annotations)
	if err := r.Kube.Patch(ctx, c, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotating NodeClaim %q: %w", c.Name, err)
	}
	return nil
}

// nodeOf returns the claim's Node, nil if it has none.
func (r *Reactor) nodeOf(ctx context.Context, c *karpv1.NodeClaim) (*corev1.Node, error) {
	if c.Status.NodeName == "" {
		return nil, nil
	}
	node := &corev1.Node{}
	err := r.Kube.Get(ctx, types.NamespacedName{Name: c.Status.NodeName}, node)
	switch {
	case apierrors.IsNotFound(err) || err == nil && node.Spec.ProviderID != c.Status.ProviderID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the node of NodeClaim %q: %w", c.Name, err)
	}
	return node, nil
}

// tell writes Karpenter's event for the kind on claim and node.
func (r *Reactor) tell(ctx context.Context, kind Kind, c *karpv1.NodeClaim, node *corev1.Node) {
	if node == nil {
		node, _ = r.nodeOf(ctx, c) // without it the claim alone gets the event
	}
	switch kind {
	case SpotInterrupted:
		r.event(c, node, corev1.EventTypeWarning, "SpotInterrupted", "Spot interruption warning was triggered")
	case ReservationInterrupted:
		r.event(c, node, corev1.EventTypeWarning, "CapacityReservationInstanceInterrupted", "Capacity Reservation interruption warning was triggered")
	case BlockEnding:
		r.event(c, node, corev1.EventTypeWarning, "CapacityBlockEnding", "The capacity block of the instance is about to end")
	case RebalanceRecommended:
		r.event(c, node, corev1.EventTypeNormal, "SpotRebalanceRecommendation", "Spot rebalance recommendation was triggered")
	case ScheduledChange, EventStatus, InstanceStatus, SystemStatus:
		r.event(c, node, corev1.EventTypeWarning, "InstanceUnhealthy", "An unhealthy warning was triggered for the instance")
	case InstanceStopped:
		r.event(c, node, corev1.EventTypeWarning, "InstanceStopping", "Instance is stopping")
	case InstanceTerminated:
		r.event(c, node, corev1.EventTypeWarning, "InstanceTerminating", "Instance is terminating")
	case None:
	}
}

// event records the event on claim and node. A %s in the note is the kind of object.
func (r *Reactor) event(c *karpv1.NodeClaim, node *corev1.Node, eventType, reason, note string) {
	say := func(o runtime.Object, kind string) {
		r.Events.Eventf(o, nil, eventType, reason, "Interruption", "%s", strings.ReplaceAll(note, "%s", kind))
	}
	say(c, "NodeClaim")
	if node != nil {
		say(node, "Node")
	}
}
