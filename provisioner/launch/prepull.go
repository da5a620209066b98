// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// ImagesAnnotation on a NodeClaim lists the images (comma separated) of the pods for which it and others of its pool were
// bought together. Nodes of the pool pull them while they boot.
const ImagesAnnotation = "slipway.sh/images"

const (
	// maxImages bounds the images nodes of a pool pull while they boot, and those a claim names.
	maxImages = 8
	// maxNamed bounds the images that are remembered for a pool.
	maxNamed = 256
	// imagesEvery is how often the images of a pool may change: each change is a new set of launch templates, which shares no
	// call with the one before.
	imagesEvery = 5 * time.Minute
	// imageBusy is how long an image keeps its place after a claim has named it, imageKept how long it is remembered.
	imageBusy = time.Hour
	imageKept = 24 * time.Hour
)

// ImagesOf returns the images most of the pods have that a node can pull ahead: those that take no secret of the pods' own.
// They are sorted by name.
func ImagesOf(pods []*corev1.Pod) []string {
	count := map[string]int{}
	for _, p := range pods {
		if len(p.Spec.ImagePullSecrets) > 0 {
			continue
		}
		for _, list := range [...][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				if list[i].ImagePullPolicy != corev1.PullNever {
					count[list[i].Image]++
				}
			}
		}
	}
	maps.DeleteFunc(count, func(image string, _ int) bool { return !ec2.ImageName(image) })
	out := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	out = out[:min(len(out), maxImages)]
	slices.Sort(out)
	return out
}

// pulls says what images the nodes of each pool pull while they boot: those of the pods its latest claims were bought for. The
// set is the pool's and not the claim's, so that claims go on sharing templates and calls.
type pulls struct {
	mu    sync.Mutex
	pools map[string]*pull
}

type pull struct {
	// named is when the latest claim that names the image was made.
	named map[string]time.Time
	// now are the images pulled, sorted, since changed; before those until then.
	now, before []string
	changed     time.Time
}

// learn takes in claims, made at the times given, and decides anew for their pools. It reports whether that changed anything.
func (p *pulls) learn(claims []*karpv1.NodeClaim, made func(*karpv1.NodeClaim) time.Time, now time.Time) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pools := map[*pull]bool{}
	for _, c := range claims {
		pool, text := c.Labels[karpv1.NodePoolLabelKey], c.Annotations[ImagesAnnotation]
		if pool == "" || text == "" {
			continue
		}
		own := p.pools[pool]
		if own == nil {
			own = &pull{named: map[string]time.Time{}}
			p.pools[pool] = own
		}
		pools[own] = true
		own.note(strings.SplitN(text, ",", maxImages+1), made(c))
	}
	for own := range pools {
		changed = own.choose(now) || changed
	}
	return changed
}

// note remembers when images were named. The text they come from may be anybody's.
func (p *pull) note(images []string, at time.Time) {
	for _, image := range images[:min(len(images), maxImages)] {
		if ec2.ImageName(image) && at.After(p.named[image]) && (len(p.named) < maxNamed || !p.named[image].IsZero()) {
			p.named[image] = at
		}
	}
}

// choose decides anew which images are pulled and reports whether that is a change. Those in use keep their places, the others
// are taken by the latest.
func (p *pull) choose(now time.Time) bool {
	maps.DeleteFunc(p.named, func(_ string, at time.Time) bool { return now.Sub(at) > imageKept })
	if len(p.now) > 0 && now.Sub(p.changed) < imagesEvery {
		return false
	}
	rank := func(image string) int { // lower is kept
		if slices.Contains(p.now, image) && now.Sub(p.named[image]) < imageBusy {
			return 0
		}
		return 1
	}
	all := slices.SortedFunc(maps.Keys(p.named), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), p.named[b].Compare(p.named[a]), cmp.Compare(a, b))
	})
	next := all[:min(len(all), maxImages)]
	slices.Sort(next)
	if slices.Equal(next, p.now) {
		return false
	}
	p.before, p.now, p.changed = p.now, slices.Clone(next), now
	return true
}

// of returns the images nodes of the pool pull, and those they pulled before the last change. Neither may be modified.
func (p *pulls) of(pool string) (now, before []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if own := p.pools[pool]; own != nil {
		return own.now, own.before
	}
	return nil, nil
}

// review decides anew for all pools: an image that no claim names any more is given up some time.
func (p *pulls) review(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pool, own := range p.pools {
		if own.choose(now); len(own.named) == 0 {
			delete(p.pools, pool)
		}
	}
}

// learn takes in the images of claims that are about to be launched. The templates that takes beyond those of the launch itself
// are made in the background.
func (t *Templates) learn(claims []*karpv1.NodeClaim) {
	now := t.clock.Now()
	if t.pulls.learn(claims, func(*karpv1.NodeClaim) time.Time { return now }, now) {
		t.trigger()
	}
}

// recall takes in the images of the claims there are: a process that starts goes on with what nodes pulled before.
func (t *Templates) recall(ctx context.Context) error {
	var list karpv1.NodeClaimList
	if err := t.kube.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NodeClaims: %w", err)
	}
	claims := make([]*karpv1.NodeClaim, len(list.Items))
	for i := range list.Items {
		claims[i] = &list.Items[i]
	}
	// The latest first: there is a bound to what is remembered.
	slices.SortFunc(claims, func(a, b *karpv1.NodeClaim) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	now := t.clock.Now()
	t.pulls.learn(claims, func(c *karpv1.NodeClaim) time.Time { return c.CreationTimestamp.Time }, now)
	t.pulls.review(now)
	return nil
}
