// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
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
	// out are the offerings EC2 refused in this launch, beyond what Shortages remembers; last is the refusal that came last.
	out  map[capacity.OfferingKey]bool
	last error
	// doubted are offerings whose requests EC2 failed to carry out; they are not asked for while there are others. blind says
	// that there were none, so that EC2 as a whole must be failing.
	doubted map[capacity.OfferingKey]bool
	blind   bool
	// found are instances with the launch's tag that were there before the first attempt.
	found []ec2.Instance
	// settled is set after the pause for calls of another process.
	settled bool
	// retries counts waits that are not bound to one request; told is the reason last written to the claims.
	retries int
	told    string
	// ensured is set once templates that EC2 did not know have been made.
	ensured bool
	// profileTries counts the waits for EC2 to learn of the instance profile, which are short until profileUntil.
	profileTries int
	profileUntil time.Time

	// deadline ends the attempts; what EC2 has launched by then is finished all the same.
	deadline  time.Time
	finishing sync.WaitGroup
}

func newRun(l *Launcher, id string, claims []*pending, before launched) *run {
	r := &run{
		l: l, id: id, waiting: claims, owned: map[string]bool{}, done: before.total,
		attempt: 1, deadline: l.Clock.Now().Add(l.Timeout), out: map[capacity.OfferingKey]bool{}, doubted: map[capacity.OfferingKey]bool{}, found: before.instances, settled: before.fresh,
	}
	for instance := range before.owned {
		r.owned[instance] = true
	}
	return r
}

// pastRun is what a launch that is over leaves for claims of its group that come later: the attempts that are used up and
// the instances that have a claim.
type pastRun struct {
	ended   time.Time
	attempt int
	done    int
	owned   map[string]bool
}

// pastFor is how long a launch is remembered: by then all claims of a group have been seen.
const pastFor = 15 * time.Minute

// resume goes on where the launch of the same id has ended in this process.
func (r *run) resume(p pastRun) {
	r.attempt, r.done = max(r.attempt, p.attempt), max(r.done, p.done)
	maps.Copy(r.owned, p.owned)
}

// do runs the launch to its end. ctx ends with this process's leadership.
func (r *run) do(ctx context.Context) {
	ctx = ec2.Urgent(log.IntoContext(ctx, log.FromContext(ctx).WithValues("launch", r.id)))
	r.handOut(ctx, r.found, sent{})
	for r.open() {
		if err := r.try(ctx); err != nil {
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
	if len(r.waiting) > 0 {
		return true
	}
	delete(r.l.runs, r.id)
	now := r.l.Clock.Now()
	maps.DeleteFunc(r.l.past, func(_ string, p pastRun) bool { return now.Sub(p.ended) > pastFor })
	r.l.past[r.id] = pastRun{ended: now, attempt: r.attempt, done: r.done, owned: r.owned}
	return false
}

// try makes one attempt and deals with its answer. An error ends the launch.
func (r *run) try(ctx context.Context) error {
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
	r.giveBack(req, int32(len(result.Instances)))
	r.makeLater(ctx, req)
	if err != nil {
		return r.failed(ctx, err, req)
	}
	r.attempt++
	r.believe(ctx, result)
	r.handOut(ctx, instancesOf(result.Instances, req.fleet), s)
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
	ctx, cancel := context.WithTimeout(ctx, r.deadline.Sub(r.l.Clock.Now()))
	defer cancel()
	for n := 0; ; n++ {
		s.at = r.l.Clock.Now()
		result, err := r.l.Cloud.Fleet(ctx, s.req.fleet)
		s.answered = r.l.Clock.Now()
		kind := capacity.KindOf(err)
		r.l.Metrics.Attempts.WithLabelValues(resultLabel(err, kind)).Inc()
		if err == nil || !transient(kind) {
			return result, err
		}
		if n+1 >= doubtAfter && r.mayDoubt(err) {
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
	r.l.busy.Add(1)
	r.finishing.Go(func() {
		defer r.l.busy.Add(-1)
		r.l.finish(ctx, given)
	})
}

func instancesOf(in []ec2.FleetInstance, req ec2.FleetRequest) []ec2.Instance {
	out := make([]ec2.Instance, len(in))
	for i, f := range in {
		out[i] = ec2.Instance{ID: f.ID, InstanceType: f.InstanceType, Zone: f.Zone, CapacityType: f.CapacityType, SubnetID: f.SubnetID, ImageID: f.ImageID, Tags: req.Tags}
		if f.ReservationID != "" {
			out[i].Reservation = &ec2.ReservationRef{ID: f.ReservationID, Block: req.Block, Interruptible: req.Interruptible}
		}
	}
	return out
}
