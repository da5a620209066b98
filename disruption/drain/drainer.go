// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/claim"
)

const (
	// again is how soon a drain that moves is looked at again, againBlocked how soon one that is barred. A pod that leaves
	// wakes the claim's reconciler at once.
	again        = time.Second
	againBlocked = 5 * time.Second
	// refusedFirst and refusedMost bound the pause between evictions of a pod the API server refuses.
	refusedFirst = time.Second
	refusedMost  = 10 * time.Second
	// evictions is how many requests one drain has under way.
	evictions = 10
	// evictionTimeout bounds one of them: a client waits by itself when the answer says when to come back.
	evictionTimeout = 5 * time.Second
	// replacementTimeout is how long after its creation a replacement of the node is waited for.
	replacementTimeout = 20 * time.Minute
	// repeatEvents is how often the event about a blocked drain is repeated (Karpenter's two minutes).
	repeatEvents = 2 * time.Minute
)

// Events records events; events.EventRecorder is one.
type Events interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Options are what a [Drainer] needs. Kube and Events are required.
type Options struct {
	// Kube reads pods (with package claim's index by node), PodDisruptionBudgets and NodeClaims from a cache. Live reads from
	// the API server (Kube if nil).
	Kube    client.Client
	Live    client.Reader
	Events  Events
	Clock   clock.Clock
	Metrics *Metrics
	// SurgeTimeout is how long a successor is waited for; 10 minutes if 0.
	SurgeTimeout time.Duration
}

// Drainer empties nodes. Its methods are safe for concurrent use, for different nodes.
type Drainer struct {
	Options
	surger *surger

	mu    sync.Mutex
	nodes map[types.UID]*progress
}

// progress is what is remembered about the drain of one node. What is lost with the process is how long pods have been
// waiting; the condition keeps since when the drain as a whole has.
type progress struct {
	refusals map[types.UID]Refusal
	blocked  map[types.UID]obstacle
	// noted are pods something was said about that is said once.
	noted map[types.UID]bool
	seen  time.Time
}

// obstacle is what blocks a pod, since when, and when it was last said.
type obstacle struct {
	blocker     Blocker
	since, told time.Time
}

// forgetAfter is how long the drain of a node that is not asked about any more is remembered.
const forgetAfter = time.Hour

// New returns a drainer.
func New(o Options) *Drainer {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	if o.Live == nil {
		o.Live = o.Kube
	}
	o.SurgeTimeout = cmp.Or(o.SurgeTimeout, 10*time.Minute)
	return &Drainer{Options: o, surger: newSurger(o), nodes: map[types.UID]*progress{}}
}

// Drain implements [claim.Drainer].
func (d *Drainer) Drain(ctx context.Context, c *karpv1.NodeClaim, node *corev1.Node, deadline *time.Time) (claim.Drainage, error) {
	in, err := d.input(ctx, c, node, deadline)
	if err != nil {
		return claim.Drainage{}, err
	}
	p := d.progressOf(node.UID, in.Now)
	in.Refusals = p.refusals
	d.note(node, p, in)
	steps := Plan(in)
	if len(steps) == 0 {
		// The cache may not have seen a pod that was bound just before the taint; the API server has.
		if in.Pods, err = podsOn(ctx, d.Live, node.Name); err != nil {
			return claim.Drainage{}, err
		}
		if steps = Plan(in); len(steps) == 0 {
			d.forget(node.UID)
			return claim.Drainage{}, nil
		}
	}
	if voluntary(c, node) {
		d.surger.prepare(ctx, in.Reason, steps)
	}
	err = d.carryOut(ctx, node, p, steps, in)
	return d.report(c, node, p, steps, in.Now), err
}

// input reads what the plan is made of.
func (d *Drainer) input(ctx context.Context, c *karpv1.NodeClaim, node *corev1.Node, deadline *time.Time) (in Input, err error) {
	in.Now, in.Reason = d.Clock.Now(), reasonOf(c)
	if deadline != nil {
		in.Deadline = *deadline
	}
	if in.Pods, err = podsOn(ctx, d.Kube, node.Name); err != nil {
		return in, err
	}
	seen := map[string]bool{}
	for _, p := range in.Pods {
		if seen[p.Namespace] || !hasToLeave(p, in.Now) {
			continue
		}
		seen[p.Namespace] = true
		var list policyv1.PodDisruptionBudgetList
		if err := d.Kube.List(ctx, &list, client.InNamespace(p.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return in, fmt.Errorf("listing the PodDisruptionBudgets of namespace %q: %w", p.Namespace, err)
		}
		for i := range list.Items {
			in.Budgets = append(in.Budgets, &list.Items[i])
		}
	}
	in.Hold, err = d.hold(ctx, c)
	return in, err
}

func podsOn(ctx context.Context, kube client.Reader, node string) ([]*corev1.Pod, error) {
	var pods corev1.PodList
	if err := kube.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("listing the pods of node %q: %w", node, err)
	}
	out := make([]*corev1.Pod, len(pods.Items))
	for i := range pods.Items {
		out[i] = &pods.Items[i]
	}
	return out, nil
}

// hold says which replacements the claim's pods wait for.
func (d *Drainer) hold(ctx context.Context, c *karpv1.NodeClaim) (string, error) {
	names := c.Annotations[capacity.ReplacedByAnnotation]
	if names == "" {
		return "", nil
	}
	var missing []string
	for name := range strings.SplitSeq(names, ",") {
		r := &karpv1.NodeClaim{}
		err := d.Kube.Get(ctx, types.NamespacedName{Name: name}, r)
		switch {
		case apierrors.IsNotFound(err): // given up, or not in the cache yet: the annotation is written a moment after it
			if d.Clock.Since(c.DeletionTimestamp.Time) < again {
				missing = append(missing, name)
			}
		case err != nil:
			return "", fmt.Errorf("reading the replacement %q of NodeClaim %q: %w", name, c.Name, err)
		case d.Clock.Since(r.CreationTimestamp.Time) > replacementTimeout: // a node that joins and never becomes usable
		case r.DeletionTimestamp == nil && !r.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue():
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return "", nil
	}
	return fmt.Sprintf("the replacement of its node, NodeClaim %s, is not ready yet", strings.Join(missing, ", ")), nil
}

func (d *Drainer) progressOf(uid types.UID, now time.Time) *progress {
	d.mu.Lock()
	defer d.mu.Unlock()
	for u, p := range d.nodes {
		if now.Sub(p.seen) > forgetAfter {
			delete(d.nodes, u)
		}
	}
	p := d.nodes[uid]
	if p == nil {
		p = &progress{refusals: map[types.UID]Refusal{}, blocked: map[types.UID]obstacle{}, noted: map[types.UID]bool{}, seen: now}
		d.nodes[uid] = p
	}
	return p
}

func (d *Drainer) forget(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.nodes, uid)
}

// note says once what people should know about single pods.
func (d *Drainer) note(node *corev1.Node, p *progress, in Input) {
	for _, pod := range in.Pods {
		if p.noted[pod.UID] || !drainable(pod) {
			continue
		}
		_, _, invalid := protection(pod, in.Now)
		switch {
		case !hasToLeave(pod, in.Now):
			d.Metrics.Stuck.Inc()
			d.Events.Eventf(node, pod, corev1.EventTypeWarning, "FailedDraining", "Drain", "Pod %q is left behind: its deletion was due at %s and has not ended (finalizers %v)",
				nameOf(pod), pod.DeletionTimestamp.UTC().Format(time.RFC3339), pod.Finalizers)
		case invalid != "":
			d.Events.Eventf(pod, node, corev1.EventTypeWarning, "InvalidDoNotDisruptAnnotation", "Drain",
				"Annotation %s: %q is neither \"true\" nor a duration such as \"30m\", and protects nothing", karpv1.DoNotDisruptAnnotationKey, invalid)
		default:
			continue
		}
		p.noted[pod.UID] = true
	}
}

// carryOut evicts and deletes, many pods at a time: one that is refused holds up none of the others. Steps that turn out to
// have to wait are changed to say so.
func (d *Drainer) carryOut(ctx context.Context, node *corev1.Node, p *progress, steps []Step, in Input) error {
	slots := make(chan struct{}, evictions)
	errs := make([]error, len(steps))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range steps {
		s := &steps[i]
		if s.Verb == Wait {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if s.Verb == Delete {
				errs[i] = d.delete(ctx, s, in)
				return
			}
			refused, err := d.evict(ctx, s, in.Reason)
			errs[i] = err
			mu.Lock()
			defer mu.Unlock()
			if !refused {
				delete(p.refusals, s.Pod.UID)
				return
			}
			r := p.refusals[s.Pod.UID]
			r.Why, r.Version, r.Times = s.Why, s.Version, r.Times+1
			s.Until = in.Now.Add(min(refusedFirst<<min(r.Times-1, 10), refusedMost))
			r.Until = s.Until
			p.refusals[s.Pod.UID] = r
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("draining node %q: %w", node.Name, err)
	}
	return nil
}

// evict asks for the eviction of a pod. A refusal turns the step into a wait.
func (d *Drainer) evict(ctx context.Context, s *Step, reason string) (refused bool, err error) {
	within, cancel := context.WithTimeout(ctx, evictionTimeout)
	defer cancel()
	err = d.Kube.SubResource("eviction").Create(within, s.Pod, eviction(s.Pod, false))
	d.Metrics.Evictions.WithLabelValues(code(err)).Inc()
	switch {
	case err == nil:
		d.Metrics.moved(reason, "evicted")
		d.Events.Eventf(s.Pod, nil, corev1.EventTypeNormal, "Evicted", "Evict", "Evicted pod: its node is being terminated")
		s.Verb, s.Blocker, s.Why = Wait, Terminating, "it was evicted"
		return false, nil
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // gone, or another pod of that name by now
		s.Verb, s.Blocker, s.Why = Wait, Terminating, "it is gone"
		return false, nil
	case apierrors.IsUnauthorized(err) || ctx.Err() != nil:
		return false, fmt.Errorf("evicting pod %q: %w", nameOf(s.Pod), err)
	}
	// A budget, a webhook, a quota, more than one budget (a server error): whatever it is, it is about this pod.
	s.Verb, s.Blocker, s.Why = Wait, Refused, "the API server refuses its eviction: "+err.Error()
	return true, nil
}

func eviction(p *corev1.Pod, dryRun bool) *policyv1.Eviction {
	e := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(p.UID)}},
	}
	if dryRun {
		e.DeleteOptions.DryRun = []string{metav1.DryRunAll}
	}
	return e
}

// delete deletes a pod whose time is up.
func (d *Drainer) delete(ctx context.Context, s *Step, in Input) error {
	err := d.Kube.Delete(ctx, s.Pod, client.GracePeriodSeconds(s.Grace), client.Preconditions{UID: new(s.Pod.UID)})
	switch {
	case client.IgnoreNotFound(err) == nil || apierrors.IsConflict(err):
	case apierrors.IsUnauthorized(err) || ctx.Err() != nil:
		return fmt.Errorf("deleting pod %q: %w", nameOf(s.Pod), err)
	default: // it is about this pod, and the condition says so
		s.Verb, s.Blocker, s.Why = Wait, Refused, "the API server refuses its deletion: "+err.Error()
		return nil
	}
	d.Metrics.moved(in.Reason, "deadline")
	d.Events.Eventf(s.Pod, nil, corev1.EventTypeNormal, "Disrupted", "Delete",
		"Deleting the pod to accommodate the terminationTime %s of the node. The pod was granted %d seconds of grace-period of its %d terminationGracePeriodSeconds. This bypasses the PDB of the pod and the do-not-disrupt annotation.",
		in.Deadline.UTC().Format(time.RFC3339), s.Grace, int64(grace(s.Pod).Seconds()))
	s.Verb, s.Blocker, s.Why = Wait, Terminating, "it was deleted"
	return nil
}

// report says how far the drain is and what blocks it, on claim, node and in metrics.
func (d *Drainer) report(c *karpv1.NodeClaim, node *corev1.Node, p *progress, steps []Step, now time.Time) claim.Drainage {
	out := claim.Drainage{Left: len(steps), Again: again}
	var said, slow []string
	blocked, moving := map[types.UID]obstacle{}, false
	for _, s := range steps {
		if !s.Blocked() {
			moving = moving || s.Blocker == Terminating
			if text := lingering(s, now); text != "" {
				slow = append(slow, text)
			}
			continue
		}
		o, known := p.blocked[s.Pod.UID]
		if known {
			d.Metrics.Blocked.WithLabelValues(string(o.blocker)).Add(now.Sub(p.seen).Seconds())
		}
		if !known || o.blocker != s.Blocker {
			o = obstacle{blocker: s.Blocker, since: blockedBefore(c, p, now)}
		}
		if out.Blocker == "" {
			out.Blocker = string(s.Blocker)
		}
		text := fmt.Sprintf("pod %q has been kept since %s: %s", nameOf(s.Pod), o.since.UTC().Format(time.RFC3339), s.Why)
		if now.Sub(o.told) >= repeatEvents {
			o.told = now
			d.Events.Eventf(node, nil, corev1.EventTypeWarning, "FailedDraining", "Drain", "Failed to drain node, %s", text)
			d.Events.Eventf(c, nil, corev1.EventTypeWarning, "FailedDraining", "Drain", "Failed to drain node, %s", text)
		}
		said = append(said, text)
		blocked[s.Pod.UID] = o
	}
	p.blocked, p.seen = blocked, now
	said = append(said, slow...)
	if len(said) == 0 {
		return out
	}
	out.Message = strings.Join(said[:min(len(said), most)], "; ")
	if more := len(said) - most; more > 0 {
		out.Message += fmt.Sprintf("; and %d more pods", more)
	}
	if !moving {
		out.Again = untilNext(steps, now)
	}
	return out
}

// lingers is how long a pod may take to stop before it is worth a word.
const lingers = time.Minute

// lingering says of a pod that has been stopping for long since when, how long it may, and what finalizers it has: nothing blocks it,
// but the drain waits for it. Empty for others.
func lingering(s Step, now time.Time) string {
	at := s.Pod.DeletionTimestamp
	if s.Blocker != Terminating || at == nil {
		return ""
	}
	since := at.Add(-time.Duration(ptr.Deref(s.Pod.DeletionGracePeriodSeconds, 0)) * time.Second)
	if now.Sub(since) < lingers {
		return ""
	}
	text := fmt.Sprintf("pod %q has been terminating since %s and has until %s", nameOf(s.Pod), since.UTC().Format(time.RFC3339), at.UTC().Format(time.RFC3339))
	if len(s.Pod.Finalizers) > 0 {
		text += fmt.Sprintf(" (finalizers %v)", s.Pod.Finalizers)
	}
	return text
}

// unhealthy is the reason of the condition DisruptionReason on claims that are repaired (Karpenter's).
const unhealthy = "Unhealthy"

// most is how many pods a message names.
const most = 3

// blockedBefore is since when a pod that is found blocked is: now, except that after a restart the condition knows better.
func blockedBefore(c *karpv1.NodeClaim, p *progress, now time.Time) time.Time {
	if cond := c.StatusConditions().Get(karpv1.ConditionTypeDrained); cond.IsFalse() && len(p.blocked) == 0 && p.seen.Equal(now) {
		return cond.LastTransitionTime.Time
	}
	return now
}

// untilNext is how long to wait if nothing moves: until the first wait ends by itself, or until it is worth another look.
func untilNext(steps []Step, now time.Time) time.Duration {
	wait := againBlocked
	for _, s := range steps {
		if s.Blocker == Successor || s.Blocker == Replacement {
			return again
		}
		if left := s.Until.Sub(now); !s.Until.IsZero() && left > 0 {
			wait = min(wait, left)
		}
	}
	return max(wait, again/10)
}

// code is the answer's HTTP status as Karpenter's metric has it.
func code(err error) string {
	if err == nil {
		return "200"
	}
	if s, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return strconv.Itoa(int(s.ErrStatus.Code))
	}
	return "unknown"
}

// voluntary reports whether there is time for successors: the node works, and nobody is about to take it away.
func voluntary(c *karpv1.NodeClaim, node *corev1.Node) bool {
	if _, interrupted := c.Annotations[capacity.InterruptedAnnotation]; interrupted {
		return false
	}
	if r := c.StatusConditions().Get(karpv1.ConditionTypeDisruptionReason); r.IsTrue() && r.Reason == unhealthy {
		return false
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// NeedLeaderElection says that only the leader ends surges.
func (d *Drainer) NeedLeaderElection() bool { return true }

// Start ends surges that earlier processes have left behind, until ctx ends; it is a manager's Runnable.
func (d *Drainer) Start(ctx context.Context) error {
	for {
		if err := d.surger.sweep(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "ending surges that were left behind")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-d.Clock.After(sweepEvery):
		}
	}
}

// sweepEvery is how often surges are looked for whose pod is gone.
const sweepEvery = time.Minute

var _ claim.Drainer = (*Drainer)(nil)
