// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/launch"
)

// adopt rebuilds the ledger from the claims of an earlier process.
func (p *Provisioner) adopt(ctx context.Context) error {
	var list karpv1.NodeClaimList
	if err := p.Kube.List(ctx, &list); err != nil {
		return fmt.Errorf("listing NodeClaims to take over: %w", err)
	}
	now := p.Clock.Now()
	var taken []string
	for i := range list.Items {
		c := &list.Items[i]
		if !c.DeletionTimestamp.IsZero() || c.Annotations[PodsAnnotation] == "" && c.Annotations[AheadAnnotation] == "" {
			continue
		}
		var pods []*corev1.Pod
		for _, key := range splitPods(c.Annotations[PodsAnnotation]) {
			pod, err := p.Pods.Pods(key.Namespace).Get(key.Name)
			if err == nil && pod.Spec.NodeName == "" && pod.DeletionTimestamp.IsZero() && !c.CreationTimestamp.Before(&pod.CreationTimestamp) { // equal: creation times have whole seconds
				pods = append(pods, pod)
			}
		}
		if len(pods) == 0 {
			p.ledger.again(c.Name) // pods of it that were still to come may never; see cancel
			continue
		}
		name := c.Annotations[launch.NodeNameAnnotation]
		p.ledger.adopt(c.Name, name, pods, now, !p.serves(pods[0]))
		if name != "" {
			p.nominate(ctx, name, pods)
		}
		taken = append(taken, c.Name)
		log.FromContext(ctx).Info("took over a claim", "nodeClaim", c.Name, "node", name, "pods", len(pods))
	}
	for _, claim := range taken { // now that those who wait for each other are known
		p.check(ctx, claim)
	}
	return nil
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
