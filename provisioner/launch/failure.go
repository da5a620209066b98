// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

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
	// profileRetry to profileRetryMax are the pauses while EC2 does not know an instance profile; after profileSettle
	// of them it is more than the delay between IAM and EC2, and people are told.
	profileRetry    = 500 * time.Millisecond
	profileRetryMax = 8 * time.Second
	profileSettle   = time.Minute
)

// failedPartly deals with what a fleet could not bring.
func (r *run) failedPartly(ctx context.Context, result ec2.FleetResult, req *request) error {
	var other error
	shortages := len(result.Errors) == 0 // nothing came and nothing was said: treated as if EC2 were out of everything asked
	for _, e := range result.Errors {
		if shortage(e) {
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

// failed decides what an error means: nil to go on (after whatever wait it needs), an error to give up. req is nil if the
// error came before the call.
func (r *run) failed(ctx context.Context, err error, req *request) error {
	kind := capacity.KindOf(err)
	e, _ := errors.AsType[*capacity.Error](err)
	switch {
	case req != nil && e != nil && shortage(e):
		r.short(ctx, e, req)
		return nil
	case kind == capacity.NoCapacity:
		return err
	case kind == capacity.Conflict:
		return r.settle(ctx, err)
	case codeOf(err) == ec2.CodeProfileUnknown:
		return r.awaitProfile(ctx, err)
	case kind == capacity.NotReady || kind == capacity.NotFound:
		if req != nil && !r.ensured && codeOf(err) == ec2.CodeTemplateNotFound {
			return r.ensure(ctx, req)
		}
		return r.slowly(ctx, err)
	case kind == capacity.Unauthorized || kind == capacity.Invalid:
		return r.slowly(ctx, err)
	case req != nil && r.mayDoubt(err):
		return r.doubt(ctx, err, req)
	}
	if !r.sleep(ctx, backoff(fastRetry, fastRetryMax, r.retries, err), nil) {
		return err
	}
	r.retries++
	return nil
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
			r.handOut(ctx, found, sent{})
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

// awaitProfile waits until EC2 knows the instance profile, which may have been made a moment ago. Nothing was launched.
func (r *run) awaitProfile(ctx context.Context, err error) error {
	now := r.l.Clock.Now()
	if r.profileUntil.IsZero() {
		r.profileUntil = now.Add(profileSettle)
	}
	if now.After(r.profileUntil) {
		return r.slowly(ctx, err)
	}
	change := r.l.change()
	if !r.sleep(ctx, backoff(profileRetry, profileRetryMax, r.profileTries, err), change) {
		return err
	}
	r.profileTries++
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
		r.finishing.Go(func() {
			claim := r.l.writeFailure(ctx, p.claim, err, retrying)
			if !retrying {
				r.l.Metrics.Duration.WithLabelValues("failed").Observe(r.l.Clock.Since(p.handed).Seconds())
			}
			r.l.report(Outcome{Claim: claim, Err: err, Retrying: retrying, Timings: Timings{HandedOver: p.handed}})
		})
	}
}

func (l *Launcher) report(o Outcome) {
	if l.Reporter != nil {
		l.Reporter.Report(o)
	}
}

// sleep waits for d or until wake is closed; false if the launch's time is up, or the process's, before.
func (r *run) sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	left := r.deadline.Sub(r.l.Clock.Now())
	timer := r.l.Clock.NewTimer(min(d, left))
	defer timer.Stop()
	r.l.busy.Add(-1)
	defer r.l.busy.Add(1)
	select {
	case <-ctx.Done():
		return false
	case <-wake:
		return true
	case <-timer.C():
		return d < left
	}
}

// backoff is the wait before retry n (from 0): it doubles from first to limit, half of it at random so that a crowd
// spreads out, and is never shorter than what the sender asked for.
func backoff(first, limit time.Duration, n int, err error) time.Duration {
	d := min(first<<min(n, 20), limit)
	d = d/2 + rand.N(d/2+1)
	if e, ok := errors.AsType[*capacity.Error](err); ok {
		d = max(d, e.RetryAfter)
	}
	return d
}

// codeOf returns the cloud's error code, empty if there is none.
func codeOf(err error) string {
	if e, ok := errors.AsType[*capacity.Error](err); ok {
		return e.Code
	}
	return ""
}
