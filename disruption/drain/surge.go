// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// surger sees to it that the last ready pod of a workload leaves a node only when another one is ready. Where the workload
// would not make one by itself, it is asked for one replica more by its scale subresource; when that one is ready the
// replica is taken back, and the workload's own controller removes the pod on the node, which has been marked as the
// cheapest to delete.
type surger struct {
	Options

	mu sync.Mutex
	// pods is what is known about pods that are to move, by UID.
	pods map[types.UID]*candidate
}

// candidate is a pod that is to move.
type candidate struct {
	// began is when it was first asked about, seen when last.
	began, seen time.Time
	// reason is why its node goes.
	reason string
	// free says that it may go without a successor; left that it was let go.
	free, left bool
	// rounds is how many surges were begun for it, scaled whether this process has asked for its replica, succeeded when the
	// replica was taken back.
	rounds    int
	scaled    bool
	succeeded time.Time
	// retry is when its workload is asked again after a failure.
	retry   time.Time
	failure string
}

// succession is how long a workload is given to remove the pod whose successor is ready.
const succession = 10 * time.Second

// retryFailed is the pause after a request about a workload failed.
const retryFailed = 5 * time.Second

// What pods wait for.
const (
	making   = "its successor is not ready yet"
	replaced = "it is being replaced by its ready successor"
)

// maxRounds bounds the surges for one pod: a workload that removes the successor instead of the pod is not surged for ever.
const maxRounds = 3

func newSurger(o Options) *surger { return &surger{Options: o, pods: map[types.UID]*candidate{}} }

// prepare turns, on a node that goes for the reason, steps of pods whose successor is not ready yet into waits. What keeps one workload from being asked for a successor
// is its own pods' affair: the others go on.
func (s *surger) prepare(ctx context.Context, reason string, steps []Step) {
	for i := range steps {
		step := &steps[i]
		tight := step.Verb == Wait && step.Blocker == Budget && step.Tight
		if step.Verb != Evict && !tight {
			continue
		}
		s.candidate(step.Pod.UID).reason = reason
		why, err := s.ahead(ctx, step.Pod, tight)
		if apierrors.IsConflict(err) {
			why, err = "its workload has just been changed", nil // looked at again with what it is now
		}
		if err != nil {
			why = s.failed(ctx, step.Pod, err)
		}
		if why != "" {
			step.Verb, step.Blocker, step.Why = Wait, Successor, why
		}
	}
}

// failed says what a pod waits for whose workload cannot be asked for a successor: RBAC or an admission policy may refuse that for
// ever, so that the pod is let go after the time a successor has.
func (s *surger) failed(ctx context.Context, p *corev1.Pod, err error) string {
	c := s.candidate(p.UID)
	if ctx.Err() == nil && s.Clock.Since(c.began) > s.SurgeTimeout {
		c.free = true
		s.skipped(ctx, p, p, fmt.Sprintf("no successor could be asked for within %s: %s", s.SurgeTimeout, err))
		return ""
	}
	c.retry, c.failure = s.Clock.Now().Add(retryFailed), "its workload cannot be asked for a successor: "+err.Error()
	return c.failure
}

// ahead says what the pod waits for, empty if it may go as far as successors are concerned. tight says that a budget
// keeps it which a successor would satisfy.
func (s *surger) ahead(ctx context.Context, p *corev1.Pod, tight bool) (string, error) {
	c := s.candidate(p.UID)
	if c.free || c.left || !ready(p) || p.Annotations[SurgeAnnotation] == "false" {
		return "", nil
	}
	if s.Clock.Now().Before(c.retry) {
		return c.failure, nil
	}
	if s.Clock.Since(c.succeeded) < succession {
		return replaced, nil
	}
	w, err := workloadOf(ctx, s.Live, p)
	if err != nil {
		return "", err
	}
	if w == nil || w.GetAnnotations()[SurgeAnnotation] == "false" {
		c.free = true
		return "", nil
	}
	r := parseRecord(w.GetLabels()[SurgeLabel])
	switch {
	case r != nil && r.pod == p.UID:
		return s.advance(ctx, p, w, r)
	case r != nil:
		return fmt.Sprintf("%s gets a successor for another of its pods first", w), nil
	}
	return s.consider(ctx, p, w, tight)
}

// consider decides about a pod whose workload is not being surged.
func (s *surger) consider(ctx context.Context, p *corev1.Pod, w *workload, tight bool) (string, error) {
	c := s.candidate(p.UID)
	s.mu.Lock()
	others, err := s.siblings(ctx, p, w)
	if err == nil && others > 0 && !tight {
		c.left = true // decided under the lock, so that two drains don't each rely on the other's pod
	}
	s.mu.Unlock()
	if err != nil || c.left {
		return "", err
	}
	late := s.Clock.Since(c.began) > s.SurgeTimeout
	switch {
	case late || c.rounds >= maxRounds:
		s.free(ctx, p, w, c, fmt.Sprintf("no successor became ready within %s", s.SurgeTimeout))
		return "", nil
	case !tight && w.replicas > 1:
		return fmt.Sprintf("it is the only ready pod of %s, whose other pods are not ready", w), nil
	}
	why, err := s.unfit(ctx, p, w)
	if err != nil {
		return "", err
	}
	if why != "" {
		s.free(ctx, p, w, c, why)
		return "", nil
	}
	if w.rolling != "" {
		return fmt.Sprintf("it is the only ready pod of %s, and %s", w, w.rolling), nil
	}
	c.rounds++
	r := &record{from: w.replicas, to: w.replicas + 1, phase: phaseUp, pod: p.UID}
	if err := s.mark(ctx, w, r); err != nil {
		return "", err
	}
	s.Events.Eventf(w.Object, p, corev1.EventTypeNormal, "SurgeStarted", "Surge", "Scaled from %d to %d until pod %q has a ready successor: its node is being disrupted", r.from, r.to, p.Name)
	s.Metrics.Surges.WithLabelValues("started").Inc()
	return s.advance(ctx, p, w, r)
}

// siblings counts the workload's other pods that are ready and stay. The lock is held.
func (s *surger) siblings(ctx context.Context, p *corev1.Pod, w *workload) (n int, err error) {
	var pods corev1.PodList
	mine := client.MatchingFields{fieldPodController: string(w.set)} // namespaces are large, and this is asked once for each pod
	if err := s.Kube.List(ctx, &pods, client.InNamespace(p.Namespace), mine, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing the pods of %s of namespace %q: %w", w, p.Namespace, err)
	}
	for i := range pods.Items {
		q := &pods.Items[i]
		if q.UID == p.UID || q.DeletionTimestamp != nil || !ready(q) {
			continue
		}
		if c := s.pods[q.UID]; c == nil || !c.left {
			n++
		}
	}
	return n, nil
}

// unfit says why the workload is not surged, empty if it can be.
func (s *surger) unfit(ctx context.Context, p *corev1.Pod, w *workload) (string, error) {
	if w.unfit != "" {
		return w.unfit, nil
	}
	if by, err := scaler(ctx, s.Live, w); err != nil || by != "" {
		return fmt.Sprintf("%s writes its replicas", by), err
	}
	volume, err := soleVolume(ctx, s.Live, p)
	if err != nil || volume == "" {
		return "", err
	}
	return fmt.Sprintf("only one node can mount its PersistentVolumeClaim %q", volume), nil
}

// free lets a pod go without a successor and says why.
func (s *surger) free(ctx context.Context, p *corev1.Pod, w *workload, c *candidate, why string) {
	c.free = true
	s.skipped(ctx, p, w.Object, fmt.Sprintf("%s: %s", w, why))
}

// skipped says that a pod is let go.
func (s *surger) skipped(ctx context.Context, p *corev1.Pod, related client.Object, why string) {
	s.Events.Eventf(p, related, corev1.EventTypeNormal, "SurgeSkipped", "Surge", "Pod is moved without a ready successor: %s", why)
	s.Metrics.Surges.WithLabelValues("skipped").Inc()
	log.FromContext(ctx).Info("pod is moved without a successor", "pod", nameOf(p), "reason", why)
}

// advance takes a surge one step further and says what the pod waits for.
func (s *surger) advance(ctx context.Context, p *corev1.Pod, w *workload, r *record) (string, error) {
	c := s.candidate(p.UID)
	switch {
	case r.phase == phaseBack:
		return replaced, s.handOver(ctx, w, r, c)
	case w.replicas == r.from && c.scaled, w.replicas != r.from && w.replicas != r.to:
		// Somebody else writes them, and knows nothing of the surge.
		if err := s.unmark(ctx, w); err != nil {
			return "", err
		}
		s.free(ctx, p, w, c, fmt.Sprintf("somebody set its replicas to %d meanwhile", w.replicas))
		return "", nil
	case w.replicas == r.from:
		if err := s.cheapest(ctx, p); err != nil {
			return "", err
		}
		if err := s.scale(ctx, w, r.to); err != nil {
			return "", err
		}
		c.scaled = true
		return making, nil
	}
	s.mu.Lock()
	others, err := s.siblings(ctx, p, w)
	s.mu.Unlock()
	switch {
	case err != nil:
		return "", err
	case others < int(r.from):
		if w.failed == "" && s.Clock.Since(c.began) <= s.SurgeTimeout {
			return making, nil
		}
		if err := s.takeBack(ctx, w, r); err != nil { // the pod that is not ready goes first
			return "", err
		}
		why := fmt.Sprintf("no successor became ready within %s", s.SurgeTimeout)
		if w.failed != "" {
			why = "no successor can be made: " + w.failed
		}
		s.free(ctx, p, w, c, why)
		return "", nil
	}
	if refusal := s.trial(ctx, p); refusal != "" {
		return "its successor is ready, and the API server does not let it go yet: " + refusal, nil
	}
	r.phase = phaseBack
	if err := s.mark(ctx, w, r); err != nil {
		return "", err
	}
	s.Events.Eventf(w.Object, p, corev1.EventTypeNormal, "SurgeFinished", "Surge", "Scaled back from %d to %d: pod %q has a ready successor", r.to, r.from, p.Name)
	s.Metrics.Surges.WithLabelValues("finished").Inc()
	s.Metrics.moved(c.reason, "succeeded")
	return replaced, s.handOver(ctx, w, r, c)
}

// trial says why the API server would not evict the pod now, empty if it would: what its workload's controller removes has to
// be within the budgets too.
func (s *surger) trial(ctx context.Context, p *corev1.Pod) string {
	ctx, cancel := context.WithTimeout(ctx, evictionTimeout)
	defer cancel()
	if err := s.Kube.SubResource("eviction").Create(ctx, p, eviction(p, true)); err != nil {
		return err.Error()
	}
	return ""
}

// handOver takes the surplus back, upon which the workload removes the pod.
func (s *surger) handOver(ctx context.Context, w *workload, r *record, c *candidate) error {
	if err := s.takeBack(ctx, w, r); err != nil {
		return err
	}
	c.scaled, c.succeeded = false, s.Clock.Now()
	return nil
}

// takeBack gives the workload its replicas back, if they are still those of the surge, and takes the label off.
func (s *surger) takeBack(ctx context.Context, w *workload, r *record) error {
	if w.replicas == r.to {
		if err := s.scale(ctx, w, r.from); err != nil {
			return err
		}
	}
	return s.unmark(ctx, w)
}

// scale writes the workload's replicas by its scale subresource, unless it has changed since it was read.
func (s *surger) scale(ctx context.Context, w *workload, replicas int32) error {
	body := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: w.GetName(), Namespace: w.GetNamespace(), UID: w.GetUID(), ResourceVersion: w.GetResourceVersion()},
		Spec:       autoscalingv1.ScaleSpec{Replicas: replicas},
	}
	if err := s.Kube.SubResource("scale").Update(ctx, w.Object, client.WithSubResourceBody(body)); err != nil {
		return fmt.Errorf("scaling %s of namespace %q to %d: %w", w, w.GetNamespace(), replicas, err)
	}
	w.replicas = replicas
	return nil
}

// cheapest marks the pod as the one its ReplicaSet removes first. It is done before the surge, so that the mark has long
// been seen when the replica is taken back; and by the status subresource, which takes annotations too, because who may
// patch pods may change what runs in them.
func (s *surger) cheapest(ctx context.Context, p *corev1.Pod) error {
	q := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`,
		p.UID, corev1.PodDeletionCost, strconv.Itoa(-1<<31)))
	if err := s.Kube.Status().Patch(ctx, q, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("marking pod %q: %w", nameOf(p), err)
	}
	return nil
}

// mark writes the record of a surge, unless the workload has changed since it was read.
func (s *surger) mark(ctx context.Context, w *workload, r *record) error {
	return s.label(ctx, w, r.String())
}

func (s *surger) unmark(ctx context.Context, w *workload) error {
	return client.IgnoreNotFound(s.label(ctx, w, ""))
}

func (s *surger) label(ctx context.Context, w *workload, value string) error {
	before, ok := w.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%s cannot be copied", w)
	}
	labels := maps.Clone(w.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	if labels[SurgeLabel] = value; value == "" {
		delete(labels, SurgeLabel)
	}
	w.SetLabels(labels)
	patch := client.MergeFrom(before)
	if value != "" {
		patch = client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	}
	if err := s.Kube.Patch(ctx, w.Object, patch); err != nil {
		return fmt.Errorf("labelling %s of namespace %q: %w", w, w.GetNamespace(), err)
	}
	return nil
}

// candidate returns what is known about a pod that is to move, and forgets pods not asked about for long.
func (s *surger) candidate(uid types.UID) *candidate {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Clock.Now()
	c := s.pods[uid]
	if c == nil {
		maps.DeleteFunc(s.pods, func(_ types.UID, c *candidate) bool { return now.Sub(c.seen) > forgetAfter })
		c = &candidate{began: now}
		s.pods[uid] = c
	}
	c.seen = now
	return c
}

// sweep ends the surges that a process has left behind whose pods are gone.
func (s *surger) sweep(ctx context.Context) error {
	var deployments appsv1.DeploymentList
	var sets appsv1.ReplicaSetList
	for _, list := range []client.ObjectList{&deployments, &sets} {
		if err := s.Live.List(ctx, list, client.HasLabels{SurgeLabel}); err != nil {
			return fmt.Errorf("listing the surges under way: %w", err)
		}
	}
	var all []*workload
	for i := range deployments.Items {
		all = append(all, deploymentOf(&deployments.Items[i], &appsv1.ReplicaSet{}))
	}
	for i := range sets.Items {
		all = append(all, replicaSet(&sets.Items[i]))
	}
	var failed []error
	for _, w := range all {
		if err := s.settle(ctx, w); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// settle ends the workload's surge if its pod is gone or going.
func (s *surger) settle(ctx context.Context, w *workload) error {
	r := parseRecord(w.GetLabels()[SurgeLabel])
	if r == nil {
		return s.unmark(ctx, w)
	}
	var pods corev1.PodList
	if err := s.Live.List(ctx, &pods, client.InNamespace(w.GetNamespace())); err != nil {
		return fmt.Errorf("listing the pods of namespace %q: %w", w.GetNamespace(), err)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.UID == r.pod && p.DeletionTimestamp == nil {
			return nil // its drain goes on
		}
	}
	log.FromContext(ctx).Info("ending a surge whose pod is gone", "owner", w.String(), "namespace", w.GetNamespace())
	return s.takeBack(ctx, w, r)
}
