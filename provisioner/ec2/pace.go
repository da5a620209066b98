// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"strings"
	"sync"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
	"k8s.io/utils/clock"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// urgentKey marks a context whose calls a launch waits for.
type urgentKey struct{}

// Urgent returns a context whose calls may use the part of EC2's request budget that is kept from all others: a launch
// waits for them.
func Urgent(ctx context.Context) context.Context { return context.WithValue(ctx, urgentKey{}, true) }

// kept is the share of every bucket that only urgent calls may use, so that no refresh, tag or clean-up, however many of
// them there are, makes a launch wait.
const kept = 0.4

// pacer keeps a client's calls inside EC2's token buckets: what would be throttled waits instead, in the order of need.
type pacer struct {
	clock clock.Clock

	mu      sync.Mutex
	buckets map[string]*bucket
}

// bucket is a token bucket.
type bucket struct {
	refill, burst float64 // tokens a second, and at most
	tokens        float64
	last          time.Time
}

// newPacer returns EC2's published buckets ("Request throttling for the Amazon EC2 API"), full. The calls of one category
// share a bucket, the stricter reading of that page. share is this process's part of the buckets that several processes of
// one account read from, 0 to 1.
func newPacer(share float64) *pacer {
	c := clock.RealClock{}
	now := c.Now()
	b := func(refill, burst float64) *bucket {
		return &bucket{refill: refill, burst: burst, tokens: burst, last: now}
	}
	return &pacer{clock: c, buckets: map[string]*bucket{
		"describe":           b(20*share, 100*share),
		"mutate":             b(5, 50),
		"RunInstances":       b(2, 5),
		"TerminateInstances": b(5, 100),
		"CreateTags":         b(10, 100),
	}}
}

// bucketOf is the bucket an action draws on.
func (p *pacer) bucketOf(action string) *bucket {
	if b := p.buckets[action]; b != nil {
		return b
	}
	if strings.HasPrefix(action, "Describe") || strings.HasPrefix(action, "Get") {
		return p.buckets["describe"]
	}
	return p.buckets["mutate"]
}

// buys are the actions that are urgent whoever calls them.
func buys(action string) bool {
	return action == "CreateFleet" || action == "RunInstances" || action == "TerminateInstances"
}

// wait takes a token for the action, when there is one. The error is ctx's.
func (p *pacer) wait(ctx context.Context, action string) error {
	urgent := buys(action) || ctx.Value(urgentKey{}) != nil
	for {
		d := p.take(action, urgent)
		if d == 0 {
			return nil
		}
		timer := p.clock.NewTimer(d)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		}
	}
}

// take takes a token, or says how long there will be none.
func (p *pacer) take(action string, urgent bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, now := p.bucketOf(action), p.clock.Now()
	b.tokens = min(b.burst, b.tokens+now.Sub(b.last).Seconds()*b.refill)
	b.last = now
	need := 1.0
	if !urgent {
		need += kept * b.burst
	}
	if b.tokens >= need {
		b.tokens--
		return 0
	}
	return max(time.Duration((need-b.tokens)/b.refill*float64(time.Second)), time.Millisecond)
}

// throttled empties the action's bucket: somebody else in the account draws on it too.
func (p *pacer) throttled(action string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.bucketOf(action)
	b.tokens, b.last = 0, p.clock.Now()
}

// attach adds the pacer to an SDK client's calls, below retries: each attempt takes a token of its own.
func (p *pacer) attach(stack *middleware.Stack) error {
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("SlipwayPace",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			action := awsmiddleware.GetOperationName(ctx)
			if err := p.wait(ctx, action); err != nil {
				return middleware.FinalizeOutput{}, middleware.Metadata{}, err
			}
			out, meta, err := next.HandleFinalize(ctx, in)
			if err != nil && capacity.KindOf(wrap(err, "")) == capacity.Throttled {
				p.throttled(action)
			}
			return out, meta, err
		}), "Retry", middleware.After)
}
