// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/launch"
)

// adopt rebuilds the ledger from the claims of an earlier process, as the API server has them: the watch of a process that has
// just been a standby may lag behind what the old leader wrote last.
func (p *Provisioner) adopt(ctx context.Context) error {
	list, err := p.allClaims(ctx)
	if err != nil {
		return err
	}
	// From now on claims of others are taken as they appear.
	p.mu.Lock()
	p.adopted = true
	p.mu.Unlock()
	// The latest plan for a pod is the one that stands.
	slices.SortFunc(list, func(a, b karpv1.NodeClaim) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	var taken []string
	for i := range list {
		c := &list[i]
		if apierrors.IsNotFound(p.Kube.Get(ctx, client.ObjectKeyFromObject(c), &karpv1.NodeClaim{})) {
			p.remember(c) // until the cache shows it
		}
		if p.takeOver(ctx, c) {
			taken = append(taken, c.Name)
		}
	}
	for _, claim := range taken { // now that those who wait for each other are known
		p.check(ctx, claim)
	}
	return nil
}

// allClaims lists the claims however long the API server is away.
func (p *Provisioner) allClaims(ctx context.Context) ([]karpv1.NodeClaim, error) {
	var reader client.Reader = p.Kube
	if p.Live != nil {
		reader = p.Live
	}
	for pause := writeFirst; ; pause = min(2*pause, writeLast) {
		var list karpv1.NodeClaimList
		err := reader.List(ctx, &list)
		if err == nil {
			return list.Items, nil
		}
		log.FromContext(ctx).Error(err, "listing NodeClaims to take over")
		timer := p.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("listing NodeClaims to take over: %w", err)
		case <-timer.C():
		}
	}
}

// appeared takes a claim that the cache shows for the first time. One that was bought for pods, and not by this process, is
// of a leader that was still writing while this one took over.
func (p *Provisioner) appeared(ctx context.Context, obj any) {
	c, ok := obj.(*karpv1.NodeClaim)
	if !ok {
		return
	}
	p.mu.Lock()
	_, recent := p.recent[c.Name]
	foreign := p.adopted && !recent
	p.mu.Unlock()
	if foreign && !p.ledger.holds(c.Name) && p.takeOver(ctx, c) {
		p.check(ctx, c.Name)
	}
}

// takeOver plans the pods that a claim was bought for onto it, if they still wait and have no claim yet. A claim without such
// pods is looked at for cancellation.
func (p *Provisioner) takeOver(ctx context.Context, c *karpv1.NodeClaim) bool {
	if !c.DeletionTimestamp.IsZero() || c.Annotations[PodsAnnotation] == "" && c.Annotations[AheadAnnotation] == "" {
		return false
	}
	var pods []*corev1.Pod
	for _, key := range splitPods(c.Annotations[PodsAnnotation]) {
		pod, err := p.Pods.Pods(key.Namespace).Get(key.Name)
		if err != nil || pod.Spec.NodeName != "" || !pod.DeletionTimestamp.IsZero() || c.CreationTimestamp.Before(&pod.CreationTimestamp) { // equal: creation times have whole seconds
			continue
		}
		if e, known := p.ledger.get(pod.UID); !known || e.state != planned {
			pods = append(pods, pod)
		}
	}
	if len(pods) == 0 {
		p.ledger.again(c.Name) // pods of it that were still to come may never; see cancel
		return false
	}
	name := c.Annotations[launch.NodeNameAnnotation]
	p.ledger.adopt(c.Name, name, pods, p.Clock.Now(), !p.serves(pods[0]))
	if name != "" {
		p.nominate(ctx, name, pods)
	}
	log.FromContext(ctx).Info("took over a claim", "nodeClaim", c.Name, "node", name, "pods", len(pods))
	return true
}

// adopt plans pods of an earlier process onto its claim. together says that this process's scheduler keeps pod groups together.
func (l *ledger) adopt(claim, node string, pods []*corev1.Pod, now time.Time, together bool) {
	l.mu.Lock()
	for _, p := range pods {
		if l.pods[p.UID] == nil {
			l.pods[p.UID] = &entry{pod: p, offered: now}
		}
		if together {
			l.regroup(l.pods[p.UID])
		}
	}
	l.mu.Unlock()
	l.assign(claim, node, pods)
}
