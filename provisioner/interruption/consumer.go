// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package interruption

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// Queue delivers messages; [ec2.Queue] is one. A message that is not deleted is delivered again.
type Queue interface {
	// Receive waits for messages; none is an answer too.
	Receive(ctx context.Context) ([]ec2.Message, error)
	Delete(ctx context.Context, receipts []string) error
}

const (
	// receivers ask the queue at the same time. An answer carries ten messages and takes a few milliseconds, so this is
	// thousands of notices a second.
	receivers = 4
	// inFlight messages are dealt with at a time. In a storm each stays until the last replacement is bought, because the ends
	// wait for that: no fewer than a storm has, or its last notices wait in the queue for the ends of the first. A message is
	// some 20 KB.
	inFlight = 5000
	// malformedTries and failingTries bound the deliveries of a message that cannot be understood, and of one whose reaction
	// fails.
	malformedTries = 3
	failingTries   = 10
	// stale is the age at which a notice is about the past: a spot warning comes two minutes ahead.
	stale = 10 * time.Minute
	// retryFirst and retryMost bound the pause after the queue has failed.
	retryFirst = time.Second
	retryMost  = time.Minute
)

// Consumer reads the interruption queue.
type Consumer struct {
	reactor *Reactor
	// open finds the queue.
	open func(ctx context.Context) (Queue, error)
}

// NewConsumer returns a consumer of the queue that open finds.
func NewConsumer(r *Reactor, open func(ctx context.Context) (Queue, error)) *Consumer {
	return &Consumer{reactor: r, open: open}
}

// NeedLeaderElection says that only the leader reacts.
func (c *Consumer) NeedLeaderElection() bool { return true }

// Start consumes until ctx ends; it is a manager's Runnable. A queue that is not there yet is waited for.
func (c *Consumer) Start(ctx context.Context) error {
	queue, ok := retried(ctx, c.reactor, "opening the interruption queue", c.open)
	if !ok {
		return nil
	}
	slots := make(chan struct{}, inFlight)
	var wg sync.WaitGroup
	for range receivers {
		wg.Go(func() {
			for ctx.Err() == nil {
				messages, ok := retried(ctx, c.reactor, "reading the interruption queue", queue.Receive)
				if !ok || len(messages) == 0 {
					continue
				}
				for range messages {
					slots <- struct{}{}
				}
				wg.Go(func() { c.handle(ctx, queue, messages, slots) })
			}
		})
	}
	wg.Wait()
	return nil
}

// retried calls do until it works; false if ctx ends before.
func retried[T any](ctx context.Context, r *Reactor, doing string, do func(context.Context) (T, error)) (T, bool) {
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		v, err := do(ctx)
		if err == nil {
			return v, true
		}
		if ctx.Err() == nil {
			log.FromContext(ctx).Error(err, doing, "retryIn", pause.String())
		}
		select {
		case <-ctx.Done():
			return v, false
		case <-r.Clock.After(pause):
		}
	}
}

// handle reacts to messages, all at the same time, and deletes those that are done with. Each gives back a slot.
func (c *Consumer) handle(ctx context.Context, queue Queue, messages []ec2.Message, slots <-chan struct{}) {
	done := make([]bool, len(messages))
	var wg sync.WaitGroup
	for i, m := range messages {
		wg.Go(func() {
			defer func() { <-slots }()
			done[i] = c.message(ctx, m)
		})
	}
	wg.Wait()
	var receipts []string
	for i, m := range messages {
		if done[i] {
			receipts = append(receipts, m.Receipt)
		}
	}
	if len(receipts) == 0 {
		return
	}
	if err := queue.Delete(ctx, receipts); err != nil {
		log.FromContext(ctx).Info("messages will be delivered again", "reason", err.Error())
		return
	}
	c.reactor.Metrics.Deleted.Add(float64(len(receipts)))
}

// message reacts to one message and reports whether it may be deleted.
func (c *Consumer) message(ctx context.Context, m ec2.Message) (done bool) {
	r := c.reactor
	logger := log.FromContext(ctx).WithValues("message", m.ID, "delivery", m.Receives)
	n, err := parse(m.Body)
	if err != nil {
		r.Metrics.Malformed.Inc()
		if m.Receives < malformedTries {
			logger.V(1).Info("message is not understood", "reason", err.Error())
			return false
		}
		logger.Error(err, "message is dropped: it is not understood", "body", clip(m.Body))
		r.Metrics.Dropped.WithLabelValues("malformed").Inc()
		return true
	}
	r.Metrics.Received.WithLabelValues(string(n.kind)).Inc()
	now := r.Clock.Now()
	if !n.at.IsZero() && now.Sub(n.at) > stale && n.kind != None {
		logger.Info("message is dropped: it is about the past", "kind", string(n.kind), "age", now.Sub(n.at).Round(time.Second).String())
		r.Metrics.Dropped.WithLabelValues("stale").Inc()
		return true
	}
	if _, err := r.react(log.IntoContext(ctx, logger), n); err != nil {
		if m.Receives < failingTries {
			logger.Info("reaction failed, the message will be delivered again", "kind", string(n.kind), "reason", err.Error())
			return false
		}
		logger.Error(err, "message is dropped: the reaction to it keeps failing", "kind", string(n.kind))
		r.Metrics.Dropped.WithLabelValues("failing").Inc()
		return true
	}
	if !n.at.IsZero() {
		r.Metrics.InQueue.Observe(r.Clock.Since(n.at).Seconds())
	}
	return true
}

// clip shortens text for the log.
func clip(s string) string {
	const most = 500
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
