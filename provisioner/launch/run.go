// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// Delays between tries. Transient causes (throttling, server errors) start fast; causes that somebody has to remove
// (permissions, bad parameters) start slow, and a changed class or pool cuts the wait short.
const (
	fastRetry    = 100 * time.Millisecond
	fastRetryMax = 10 * time.Second
	slowRetry    = 30 * time.Second
	slowRetryMax = 5 * time.Minute
)

// run is the launch of one id: attempts until every claim of it has an instance, is gone, or nothing is left to try.
// Its fields belong to its goroutine, except inbox.
type run struct {
	l  *Launcher
	id string
	// inbox has claims that joined after the start; guarded by Launcher.mu.
	inbox []*pending
	// waiting are the claims without an instance, by name.
	waiting []*pending
	// instances by id that have a claim already.
	owned map[string]bool
	// done is how many claims of the group have an instance.
	done int
	// attempt counts from 1; it moves on only when EC2 has answered.
	attempt int
	// out are the offerings EC2 refused in this launch, beyond what Shortages remembers.
	out map[capacity.OfferingKey]bool
	// found are instances with the launch's tag that were there before the first attempt.
	found []ec2.Instance
	// settled is set after the pause for calls of another process.
	settled bool
	// retries counts waits that are not bound to one request; told is the reason last written to the claims.
	retries int
	told    string
	// ensured is set once templates that EC2 did not know have been made.
	ensured bool

	finishing sync.WaitGroup
}

func newRun(l *Launcher, id string, claims []*pending, before launched) *run {
	r := &run{
		l: l, id: id, waiting: claims, owned: map[string]bool{}, done: before.total,
		attempt: 1, out: map[capacity.OfferingKey]bool{}, found: before.instances, settled: before.fresh,
	}
	for instance := range before.owned {
		r.owned[instance] = true
	}
	return r
}

// do runs the launch to its end.
func (r *run) do(ctx context.Context) {
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("launch", r.id))
	deadline, cancel := context.WithTimeout(ctx, r.l.Timeout)
	defer cancel()
	r.handOut(ctx, r.found, sent{})
	for r.open() {
		if err := r.try(deadline, ctx); err != nil {
			r.giveUp(ctx, err)
		}
	}
	r.finishing.Wait()
}

// open takes in claims that joined, drops those that are gone, and reports whether any is waiting. If none is, the run is
// over and is taken off the list in the same breath, so that a claim that comes later starts a new one.
func (r *run) open() bool {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	r.waiting = append(r.waiting, r.inbox...)
	r.inbox = nil
	r.waiting = slices.DeleteFunc(r.waiting, func(p *pending) bool { return p.gone.Load() })
	if len(r.waiting) == 0 {
		delete(r.l.runs, r.id)
		return false
	}
	return true
}

// try makes one attempt and deals with its answer. An error ends the launch. ctx ends with the launch's time limit, life
// with the process's leadership: what EC2 has launched is finished even after the limit.
func (r *run) try(ctx, life context.Context) error {
	if err := r.protect(ctx); err != nil || len(r.waiting) == 0 {
		return err
	}
	req, err := r.request(ctx)
	if err != nil {
		return r.failed(ctx, err, nil)
	}
	defer r.release(req)
	s := sent{req: req}
	result, err := r.send(ctx, &s)
	if err != nil {
		return r.failed(ctx, err, req)
	}
	r.attempt++
	r.handOut(life, instancesOf(result.Instances), s)
	return r.failedPartly(ctx, result, req)
}

// protect adds the finalizer to waiting claims that lack it: without it a claim could vanish and leave its instance behind.
// Slipway creates claims with it; other authors may not.
func (r *run) protect(ctx context.Context) error {
	for n := 0; ; n++ {
		again := false
		for _, p := range r.waiting {
			if controllerutil.ContainsFinalizer(p.claim, karpv1.TerminationFinalizer) {
				continue
			}
			c := p.claim.DeepCopy()
			controllerutil.AddFinalizer(c, karpv1.TerminationFinalizer)
			err := r.l.Kube.Patch(ctx, c, client.MergeFromWithOptions(p.claim, client.MergeFromWithOptimisticLock{}))
			switch {
			case err == nil:
				p.claim = c
			case apierrors.IsNotFound(err) || apierrors.IsInvalid(err): // gone, or going: no finalizer can be added then
				p.gone.Store(true)
			default:
				again = true
				fresh := &karpv1.NodeClaim{}
				if err := r.l.Kube.Get(ctx, client.ObjectKeyFromObject(p.claim), fresh); err == nil && fresh.UID == p.claim.UID {
					p.claim = fresh
				}
			}
		}
		r.waiting = slices.DeleteFunc(r.waiting, func(p *pending) bool { return p.gone.Load() })
		if !again {
			return nil
		}
		if !r.sleep(ctx, backoff(10*time.Millisecond, fastRetryMax, n, nil), nil) {
			return fmt.Errorf("adding the finalizer to the claims of launch %q: %w", r.id, ctx.Err())
		}
	}
}

// sent is a request with the instants of its last try.
type sent struct {
	req          *request
	at, answered time.Time
}

// send calls CreateFleet until EC2 gives an answer that means something. The request and its token stay the same: a call
// that EC2 carried out although its answer was lost is answered, not repeated.
func (r *run) send(ctx context.Context, s *sent) (ec2.FleetResult, error) {
	for n := 0; ; n++ {
		s.at = r.l.Clock.Now()
		result, err := r.l.Cloud.Fleet(ctx, s.req.fleet)
		s.answered = r.l.Clock.Now()
		kind := capacity.KindOf(err)
		r.l.Metrics.Attempts.WithLabelValues(resultLabel(err, kind)).Inc()
		if err == nil || !transient(kind) {
			return result, err
		}
		log.FromContext(ctx).V(1).Info("CreateFleet will be retried", "attempt", r.attempt, "kind", string(kind), "reason", err.Error())
		if !r.sleep(ctx, backoff(fastRetry, fastRetryMax, n, err), nil) {
			return result, fmt.Errorf("giving up after %s: %w", r.l.Timeout, err)
		}
	}
}

func resultLabel(err error, kind capacity.Kind) string {
	switch {
	case err == nil:
		return "ok"
	case kind == capacity.Unknown:
		return "Unknown"
	}
	return string(kind)
}

// transient reports whether the same request may succeed in a moment.
func transient(k capacity.Kind) bool {
	return k == capacity.Throttled || k == capacity.Unavailable || k == capacity.Unknown
}

// failedPartly deals with what a fleet could not bring.
func (r *run) failedPartly(ctx context.Context, result ec2.FleetResult, req *request) error {
	var other error
	shortages := len(result.Errors) == 0 // nothing came and nothing was said: treated as if EC2 were out of everything asked
	for _, e := range result.Errors {
		if e.Kind == capacity.NoCapacity {
			shortages = true
			r.short(ctx, e, req)
		} else if other == nil {
			other = e
		}
	}
	if len(result.Errors) == 0 && len(result.Instances) == 0 {
		for _, o := range req.offerings {
			r.out[o.Key()] = true
		}
	}
	if other == nil || shortages || len(result.Instances) > 0 {
		return nil // the next attempt asks for what is left, without what EC2 is out of
	}
	return r.failed(ctx, other, req)
}

// short remembers what EC2 is out of. An error that names no offering speaks of the whole request.
func (r *run) short(ctx context.Context, e *capacity.Error, req *request) {
	keys := e.Offerings
	if len(keys) == 0 {
		for _, o := range req.offerings {
			keys = append(keys, o.Key())
		}
	}
	for _, k := range keys {
		r.l.Metrics.Failures.WithLabelValues(k.Zone, k.CapacityType, e.Code).Inc()
	}
	log.FromContext(ctx).V(1).Info("EC2 is out of offerings", "offerings", len(keys), "offering", keys[0], "reason", e.Error())
	if e.Code == ec2.CodeSubnetFull {
		for _, k := range keys {
			r.l.Subnets.exhausted(req.subnets[k.Zone])
		}
		return
	}
	for _, k := range keys {
		r.out[k] = true
	}
	r.l.Shortages.Mark(keys...)
}

// failed decides what an error means: nil to go on (after whatever wait it needs), an error to give up. req is nil if the
// error came before the call.
func (r *run) failed(ctx context.Context, err error, req *request) error {
	switch kind := capacity.KindOf(err); kind {
	case capacity.NoCapacity:
		if req == nil {
			return err
		}
		var e *capacity.Error
		errors.As(err, &e)
		r.short(ctx, e, req)
		return nil
	case capacity.Conflict:
		return r.settle(ctx, err)
	case capacity.NotReady, capacity.NotFound:
		if req != nil && !r.ensured && codeOf(err) == ec2.CodeTemplateNotFound {
			return r.ensure(ctx, req)
		}
		return r.slowly(ctx, err)
	case capacity.Unauthorized, capacity.Invalid:
		return r.slowly(ctx, err)
	default:
		if ctx.Err() != nil || !r.sleep(ctx, backoff(fastRetry, fastRetryMax, r.retries, err), nil) {
			return err
		}
		r.retries++
		return nil
	}
}

// settle deals with a token that was used with other parameters, by a process that died: its instances are looked for
// after a pause that lets its call come to an end, and the next token is used for what is still wanted.
func (r *run) settle(ctx context.Context, cause error) error {
	if !r.settled {
		r.settled = true
		if !r.sleep(ctx, r.l.Settle, nil) {
			return cause
		}
	}
	for n := 0; ; n++ {
		found, err := r.l.Cloud.DescribeByTag(ctx, ec2.TagLaunch, []string{r.id})
		if err == nil {
			r.attempt++
			r.handOut(context.WithoutCancel(ctx), found, sent{})
			return nil
		}
		if !r.sleep(ctx, backoff(fastRetry, fastRetryMax, n, err), nil) {
			return err
		}
	}
}

// ensure makes the launch templates that EC2 said do not exist. The next attempt does not come back here for them.
func (r *run) ensure(ctx context.Context, req *request) error {
	for _, name := range req.templates {
		if err := r.l.Templates.ensure(ctx, name, true); err != nil {
			return r.slowly(ctx, err)
		}
	}
	r.ensured = true
	return nil
}

// slowly tells people what is wrong and waits for a change of class or pool, or a while.
func (r *run) slowly(ctx context.Context, err error) error {
	change := r.l.change()
	if reason := reasonOf(err); r.told != reason {
		r.told = reason
		r.tell(ctx, err, true)
	}
	if !r.sleep(ctx, backoff(slowRetry, slowRetryMax, r.retries, err), change) {
		return err
	}
	r.retries++
	return nil
}

// giveUp ends the launch of all waiting claims. They stay known, so that they are not launched again before they are
// deleted: by whoever hears the report, or by package claim at the launch timeout.
func (r *run) giveUp(ctx context.Context, err error) {
	if ctx.Err() == nil {
		r.tell(ctx, err, false)
	}
	r.waiting = nil
}

// tell writes the cause to the waiting claims and reports it.
func (r *run) tell(ctx context.Context, err error, retrying bool) {
	if len(r.waiting) == 0 {
		return
	}
	log.FromContext(ctx).Info("launch is stuck", "claims", len(r.waiting), "nodeClaim", r.waiting[0].claim.Name, "retrying", retrying, "reason", err.Error())
	for _, p := range r.waiting {
		if r.l.Events != nil {
			r.l.Events.Eventf(p.claim, nil, corev1.EventTypeWarning, eventReason(err), "Launch", "NodeClaim %s: %s", p.claim.Name, short(err.Error()))
		}
		r.finishing.Add(1)
		go func() {
			defer r.finishing.Done()
			claim := r.l.writeFailure(ctx, p.claim, err, retrying)
			if !retrying {
				r.l.Metrics.Duration.WithLabelValues("failed").Observe(r.l.Clock.Since(p.handed).Seconds())
			}
			r.l.report(Outcome{Claim: claim, Err: err, Retrying: retrying, Timings: Timings{HandedOver: p.handed}})
		}()
	}
}

func (l *Launcher) report(o Outcome) {
	if l.Reporter != nil {
		l.Reporter.Report(o)
	}
}

// sleep waits for d or until wake is closed; false if ctx ended first.
func (r *run) sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := r.l.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C():
	}
	return ctx.Err() == nil
}

// backoff is the wait before retry n (from 0): it doubles from first to limit, half of it at random so that a crowd
// spreads out, and is never shorter than what the sender asked for.
func backoff(first, limit time.Duration, n int, err error) time.Duration {
	d := min(first<<min(n, 20), limit)
	d = d/2 + rand.N(d/2+1)
	var e *capacity.Error
	if errors.As(err, &e) {
		d = max(d, e.RetryAfter)
	}
	return d
}

// handOut gives instances to waiting claims, both in sorted order, and finishes those claims in the background. Instances
// that have a claim, are not alive, or are more than the claims stay as they are.
func (r *run) handOut(ctx context.Context, instances []ec2.Instance, s sent) {
	slices.SortFunc(instances, func(a, b ec2.Instance) int { return strings.Compare(a.ID, b.ID) })
	var given []*assigned
	for _, i := range instances {
		if r.owned[i.ID] {
			continue
		}
		if i.State != "" && i.State != "pending" && i.State != "running" {
			r.owned[i.ID] = true // dead: not to be handed out when a repeated call names it again
			continue
		}
		if len(r.waiting) == 0 {
			log.FromContext(ctx).Info("instance is more than the claims of its launch", "instanceID", i.ID)
			continue
		}
		r.owned[i.ID] = true
		r.done++
		given = append(given, &assigned{pending: r.waiting[0], instance: i, timings: Timings{
			HandedOver: r.waiting[0].handed, Sent: s.at, Answered: s.answered,
		}})
		r.waiting = r.waiting[1:]
	}
	if len(given) == 0 {
		return
	}
	r.finishing.Add(1)
	go func() {
		defer r.finishing.Done()
		r.l.finish(ctx, given)
	}()
}

// codeOf returns the cloud's error code, empty if there is none.
func codeOf(err error) string {
	var e *capacity.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func instancesOf(in []ec2.FleetInstance) []ec2.Instance {
	out := make([]ec2.Instance, len(in))
	for i, f := range in {
		out[i] = ec2.Instance{ID: f.ID, InstanceType: f.InstanceType, Zone: f.Zone, CapacityType: f.CapacityType, SubnetID: f.SubnetID, ImageID: f.ImageID}
	}
	return out
}
