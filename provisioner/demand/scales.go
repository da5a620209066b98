// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// ScaleReader reads the scale subresource of an owner of any kind. It may block. A kind that the API server does not know
// gives an error of meta.IsNoMatchError; an owner that is gone or has no such subresource one of IsNotFound.
type ScaleReader interface {
	Scale(ctx context.Context, namespace string, owner metav1.OwnerReference) (*autoscalingv1.Scale, error)
}

const (
	// scaleFresh is how old an answer may be before it is asked for again; scaleKept is how long the last answer stands while
	// asking fails.
	scaleFresh = time.Second
	scaleKept  = 30 * time.Second
	// scaleless is how long an owner without the subresource, or a kind that cannot be asked (no permission), is left alone.
	scaleless = 5 * time.Minute
	// scaleUnused is how long an owner is remembered that nobody asks about; scaleMost bounds how many are.
	scaleUnused = 10 * time.Minute
	scaleMost   = 1000
	// scaleReaders bounds the requests under way.
	scaleReaders = 4
	// scaleTimeout bounds one request.
	scaleTimeout = 5 * time.Second
)

// Scales knows how many pods owners of any kind should have, from their scale subresource. It asks the API server in the
// background, and only about owners whose pods fit nowhere: the first pod of such an owner finds nothing known, those that
// follow it do. Safe for concurrent use.
type Scales struct {
	reader ScaleReader
	clock  clock.PassiveClock
	slots  chan struct{}

	mu     sync.Mutex
	owners map[types.UID]*scaled
	kinds  map[string]time.Time // that cannot be asked, by API version and kind, and since when
}

// scaled is what is known of one owner.
type scaled struct {
	replicas int
	selector labels.Selector
	known    bool
	answered time.Time // of the last answer
	next     time.Time // the earliest for another
	used     time.Time
	asking   bool
}

// NewScales returns an empty cache over the reader.
func NewScales(r ScaleReader, c clock.PassiveClock) *Scales {
	return &Scales{reader: r, clock: c, slots: make(chan struct{}, scaleReaders), owners: map[types.UID]*scaled{}, kinds: map[string]time.Time{}}
}

// Replicas is how many pods like this one the owner should have; false while that is not known, or if the owner's selector
// leaves the pod out. It never blocks: what is stale is asked for in the background until ctx ends.
func (s *Scales) Replicas(ctx context.Context, pod *corev1.Pod, owner metav1.OwnerReference) (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	kind := owner.APIVersion + "/" + owner.Kind
	if since, no := s.kinds[kind]; no && now.Sub(since) < scaleless {
		return 0, false
	}
	o := s.owners[owner.UID]
	if o == nil {
		if s.evict(now); len(s.owners) >= scaleMost {
			return 0, false
		}
		o = &scaled{}
		s.owners[owner.UID] = o
	}
	o.used = now
	if !o.asking && !now.Before(o.next) {
		select {
		case s.slots <- struct{}{}:
			o.asking = true
			go s.ask(ctx, pod.Namespace, owner, o)
		default: // the next pod asks
		}
	}
	if !o.known || now.Sub(o.answered) > scaleKept || o.selector != nil && !o.selector.Matches(labels.Set(pod.Labels)) {
		return 0, false
	}
	return o.replicas, true
}

// ask reads the subresource and notes the answer.
func (s *Scales) ask(ctx context.Context, namespace string, owner metav1.OwnerReference, o *scaled) {
	ctx, cancel := context.WithTimeout(ctx, scaleTimeout)
	defer cancel()
	scale, err := s.reader.Scale(ctx, namespace, owner)
	s.mu.Lock()
	defer s.mu.Unlock()
	<-s.slots
	now := s.clock.Now()
	o.asking, o.next = false, now.Add(scaleFresh)
	switch {
	case err == nil && scale.UID != "" && scale.UID != owner.UID, apierrors.IsNotFound(err):
		o.known, o.next = false, now.Add(scaleless)
	case apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err), meta.IsNoMatchError(err):
		kind := owner.APIVersion + "/" + owner.Kind
		s.kinds[kind] = now
		logr.FromContextOrDiscard(ctx).Info("no look-ahead for owners of this kind", "kind", kind, "reason", err.Error())
	case err != nil: // the last answer stands for a while
		logr.FromContextOrDiscard(ctx).V(1).Info("an owner's scale could not be read", "owner", owner.Kind+"/"+namespace+"/"+owner.Name, "reason", err.Error())
	default:
		o.replicas, o.known, o.answered = int(scale.Spec.Replicas), true, now
		o.selector = nil
		if sel, err := labels.Parse(scale.Status.Selector); err == nil && scale.Status.Selector != "" {
			o.selector = sel
		}
	}
}

// evict forgets owners that nobody has asked about for long.
func (s *Scales) evict(now time.Time) {
	for uid, o := range s.owners {
		if now.Sub(o.used) > scaleUnused && !o.asking {
			delete(s.owners, uid)
		}
	}
}
