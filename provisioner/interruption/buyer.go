// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package interruption

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

const (
	// windowFirst is how long the first notice waits for others, windowBusy how long while notices keep coming, for each launch
	// that the round before took, and windowLong when they have used up most of the calls there are: EC2 takes fifty
	// CreateFleet calls at once and then five a second, and notices of one spot pool come in crowds. The less is left the longer
	// rounds stay open: a storm of two seconds is spread over the calls, and none of its notices waits for a long round.
	windowFirst = 5 * time.Millisecond
	windowBusy  = 38 * time.Millisecond
	windowLong  = 250 * time.Millisecond
	// busyFor is how long after a round others are expected.
	busyFor = 250 * time.Millisecond
	// calls are those a storm may take at once, callsPerSecond what comes back: EC2's budget, less what others need.
	calls          = 45
	callsPerSecond = 4
	// callsScarce is the part of the calls below which rounds become longer.
	callsScarce = 3
	// callsLow is how many of them are left when rounds become long.
	callsLow = 4
	// creates bounds the claims being written at a time.
	creates = 64
	// writeTimeout bounds the writing of a round.
	writeTimeout = 30 * time.Second
	// calmFor and calmMost say how long ends wait for rounds: until none has been closed for a while, but not for ever.
	calmFor  = 150 * time.Millisecond
	calmMost = 3 * time.Second
	calmLook = 25 * time.Millisecond
)

// buyer writes replacement claims, for notices that come at about the same time together.
type buyer struct {
	Options
	limits *limits
	slots  chan struct{}
	// turn is held while a round is written; the next one stays open for notices meanwhile.
	turn sync.Mutex

	mu    sync.Mutex
	next  *round
	ended time.Time // when the round before was closed
	// left are the calls that can be made at once, as of counted.
	left    float64
	counted time.Time
	writing bool
	// launches is how many the round before took.
	launches int
}

// round is replacements that are written together.
type round struct {
	wants []*want
	done  chan struct{}
}

// want is a node to be replaced.
type want struct {
	old *karpv1.NodeClaim
	// claim is the replacement to be, sized for this node alone if fixed.
	claim *karpv1.NodeClaim
	fixed bool
	load  load
	// names are the claims that were written for its pods.
	names []string
	errs  []error
}

func newBuyer(o Options) *buyer {
	return &buyer{Options: o, limits: newLimits(), slots: make(chan struct{}, creates), left: calls, counted: o.Clock.Now()}
}

// replace writes replacements for the claim if its node's pods need some, and returns their names, none if there are none.
func (b *buyer) replace(ctx context.Context, kind Kind, c *karpv1.NodeClaim, node *corev1.Node) ([]string, error) {
	if names, err := b.replaced(ctx, c); err != nil || len(names) > 0 {
		return names, err // at an earlier delivery of the notice
	}
	w, why, err := b.draft(ctx, kind, c, node)
	if err != nil {
		return nil, err
	}
	if w == nil {
		b.Metrics.Replacements.WithLabelValues(why).Inc()
		return nil, nil
	}
	<-b.join(ctx, w).done // within writeTimeout
	if len(w.names) == 0 {
		b.limits.forget(w.claim.Name)
		return nil, errors.Join(w.errs...)
	}
	b.Metrics.Replacements.WithLabelValues("bought").Inc()
	return w.names, nil
}

// join adds to the open round, and opens one if there is none.
func (b *buyer) join(ctx context.Context, w *want) *round {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.next
	if r == nil {
		r = &round{done: make(chan struct{})}
		b.next = r
		go b.write(context.WithoutCancel(ctx), r, b.window())
	}
	r.wants = append(r.wants, w)
	return r
}

// window is how long the round that begins now stays open. The lock is held.
func (b *buyer) window() time.Duration {
	now := b.Clock.Now()
	b.left, b.counted = min(b.left+now.Sub(b.counted).Seconds()*callsPerSecond, calls), now
	switch {
	case b.left < callsLow:
		return windowLong
	case now.Sub(b.ended) < busyFor || b.writing:
		scarce := max(1, calls/callsScarce/b.left)
		return min(time.Duration(float64(windowBusy)*scarce)*time.Duration(max(b.launches, 1)), windowLong)
	}
	return windowFirst
}

// write closes the round after the window, and after the one before it has been written, and writes its claims.
func (b *buyer) write(ctx context.Context, r *round, window time.Duration) {
	<-b.Clock.After(window)
	b.turn.Lock()
	defer b.turn.Unlock()
	b.mu.Lock()
	b.next, b.ended, b.writing = nil, b.Clock.Now(), true
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	made := b.merge(ctx, r.wants)
	groups := group(made)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, m := range made {
		b.slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-b.slots }()
			err := b.Kube.Create(ctx, m.claim)
			mu.Lock()
			defer mu.Unlock()
			for _, w := range m.wants {
				if err != nil && !apierrors.IsAlreadyExists(err) {
					w.errs = append(w.errs, fmt.Errorf("creating NodeClaim %q to replace %q: %w", m.claim.Name, w.old.Name, err))
					continue
				}
				w.names = append(w.names, m.claim.Name)
			}
		})
	}
	wg.Wait()
	b.mu.Lock()
	b.left -= float64(groups)
	b.launches = groups
	b.ended, b.writing = b.Clock.Now(), false
	b.mu.Unlock()
	close(r.done)
}

// calm waits until no round is open or has just been closed: replacements come before what can wait.
func (b *buyer) calm() {
	for began := b.Clock.Now(); b.Clock.Since(began) < calmMost; <-b.Clock.After(calmLook) {
		b.mu.Lock()
		busy := b.next != nil || b.writing || b.Clock.Since(b.ended) < calmFor
		b.mu.Unlock()
		if !busy {
			return
		}
	}
}

// made is a claim to be written and the nodes whose pods it is for.
type made struct {
	claim *karpv1.NodeClaim
	wants []*want
}

// merge turns the nodes of a round into claims: those that one launch can replace are packed together.
func (b *buyer) merge(ctx context.Context, wants []*want) []made {
	slices.SortFunc(wants, func(a, b *want) int { return strings.Compare(a.old.Name, b.old.Name) })
	var out []made
	equal := map[string][]*want{}
	var order []string
	for _, w := range wants {
		if w.fixed {
			out = append(out, made{claim: w.claim, wants: []*want{w}})
			continue
		}
		key := sameness(w.claim) + "|" + kinds(w.load)
		if len(equal[key]) == 0 {
			order = append(order, key)
		}
		equal[key] = append(equal[key], w)
	}
	for _, key := range order {
		out = append(out, b.packed(ctx, equal[key])...)
	}
	return out
}

// packed are the claims for nodes that are equal but for their pods. A claim is named after the first of its nodes.
func (b *buyer) packed(ctx context.Context, wants []*want) []made {
	loads := make([]load, len(wants))
	for i, w := range wants {
		loads[i] = w.load
	}
	var out []made
	named := map[int]int{}
	for _, n := range pack(loads, b.room(ctx, wants[0].claim, loads)) {
		slices.Sort(n.loads)
		first := n.loads[0]
		m := made{claim: wants[first].claim.DeepCopy()}
		m.claim.Name = replacementName(wants[first].old, named[first])
		named[first]++
		m.claim.Spec.Resources.Requests = n.requests.List()
		var replaces, avoid []string
		for _, i := range n.loads {
			m.wants = append(m.wants, wants[i])
			replaces = append(replaces, wants[i].old.Name)
			if spent := wants[i].claim.Annotations[capacity.AvoidAnnotation]; spent != "" && !slices.Contains(avoid, spent) {
				avoid = append(avoid, spent)
			}
		}
		m.claim.Annotations[capacity.ReplacesAnnotation] = strings.Join(replaces, ",")
		if len(avoid) > 0 {
			m.claim.Annotations[capacity.AvoidAnnotation] = strings.Join(avoid, ",")
		}
		out = append(out, m)
	}
	return out
}

// kinds tells loads apart that ask for different devices: they are on nodes of different kinds.
func kinds(l load) string {
	seen := map[corev1.ResourceName]bool{}
	for _, p := range l.pods {
		for name := range p.List() {
			if strings.Contains(string(name), "/") {
				seen[name] = true
			}
		}
	}
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// group gives equal claims a launch group, and returns how many launches there are.
func group(all []made) int {
	equal := map[string][]made{}
	for _, m := range all {
		key := sameness(m.claim)
		equal[key] = append(equal[key], m)
	}
	for _, members := range equal {
		if len(members) < 2 {
			continue
		}
		id := string(uuid.NewUUID())
		for _, m := range members {
			m.claim.Annotations[capacity.LaunchGroupAnnotation] = id
			m.claim.Annotations[capacity.LaunchGroupSizeAnnotation] = strconv.Itoa(len(members))
		}
	}
	return len(equal)
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
