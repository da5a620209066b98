// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package interruption

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

const (
	// windowFirst is how long the first notice waits for others, windowBusy how long while notices keep coming: EC2 takes
	// fifty CreateFleet calls at once and then five a second, and notices of one spot pool come in crowds.
	windowFirst = 5 * time.Millisecond
	windowBusy  = 40 * time.Millisecond
	// busyFor is how long after a round others are expected.
	busyFor = 250 * time.Millisecond
	// creates bounds the claims being written at a time.
	creates = 64
	// writeTimeout bounds the writing of a round.
	writeTimeout = 30 * time.Second
)

// buyer writes replacement claims, those that are asked for at about the same time together.
type buyer struct {
	Options
	limits *limits
	slots  chan struct{}

	mu    sync.Mutex
	next  *round
	ended time.Time // when the round before was closed
}

// round is claims that are written together.
type round struct {
	wants []*want
	done  chan struct{}
}

// want is a claim to be written.
type want struct {
	claim *karpv1.NodeClaim
	err   error
}

func newBuyer(o Options) *buyer {
	return &buyer{Options: o, limits: newLimits(), slots: make(chan struct{}, creates)}
}

// replace writes a replacement for the claim if its node's pods need one, and returns the replacement's name, empty if
// there is none.
func (b *buyer) replace(ctx context.Context, kind Kind, c *karpv1.NodeClaim, node *corev1.Node) (string, error) {
	claim, why, err := b.draft(ctx, kind, c, node)
	if err != nil {
		return "", err
	}
	if claim == nil {
		b.Metrics.Replacements.WithLabelValues(why).Inc()
		return "", nil
	}
	w := &want{claim: claim}
	b.mu.Lock()
	r := b.next
	if r == nil {
		r = &round{done: make(chan struct{})}
		b.next = r
		window := windowFirst
		if b.Clock.Since(b.ended) < busyFor {
			window = windowBusy
		}
		go b.write(context.WithoutCancel(ctx), r, window)
	}
	r.wants = append(r.wants, w)
	b.mu.Unlock()
	<-r.done // within writeTimeout
	if w.err != nil {
		b.limits.forget(claim.Name)
		return "", w.err
	}
	b.Metrics.Replacements.WithLabelValues("bought").Inc()
	return claim.Name, nil
}

// write closes the round after the window and writes its claims, equal ones as one launch group.
func (b *buyer) write(ctx context.Context, r *round, window time.Duration) {
	<-b.Clock.After(window)
	b.mu.Lock()
	b.next, b.ended = nil, b.Clock.Now()
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	group(r.wants)
	var wg sync.WaitGroup
	for _, w := range r.wants {
		b.slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-b.slots }()
			err := b.Kube.Create(ctx, w.claim)
			if err != nil && !apierrors.IsAlreadyExists(err) { // written at an earlier delivery of the notice
				w.err = fmt.Errorf("creating NodeClaim %q to replace %q: %w", w.claim.Name, w.claim.Annotations[capacity.ReplacesAnnotation], err)
			}
		})
	}
	wg.Wait()
	close(r.done)
}

// group gives equal claims a launch group.
func group(wants []*want) {
	equal := map[string][]*want{}
	var order []string
	for _, w := range wants {
		key := sameness(w.claim)
		if len(equal[key]) == 0 {
			order = append(order, key)
		}
		equal[key] = append(equal[key], w)
	}
	for _, key := range order {
		members := equal[key]
		if len(members) < 2 {
			continue
		}
		id := string(uuid.NewUUID())
		for _, w := range members {
			w.claim.Annotations[capacity.LaunchGroupAnnotation] = id
			w.claim.Annotations[capacity.LaunchGroupSizeAnnotation] = strconv.Itoa(len(members))
		}
	}
}

// sameness is equal for claims that one launch can serve: labels and specs are the same.
func sameness(c *karpv1.NodeClaim) string {
	// Only strings, numbers and quantities are in there, which always marshal.
	raw, err := json.Marshal(struct {
		Labels map[string]string
		Spec   karpv1.NodeClaimSpec
	}{c.Labels, c.Spec})
	if err != nil {
		return c.Name
	}
	return string(raw)
}
