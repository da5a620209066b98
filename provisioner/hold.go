// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/hypothesis"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/provisioner/view"
)

// Hold keeps places on claims that are on their way, for pods that will move there from other nodes: to plans and the judge they are
// taken. It replaces what was held before. A held pod must not be one that has a node: pass a stand-in with a UID of its own.
func (p *Provisioner) Hold(held map[string][]*corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
}

// Bought tells that somebody else in the process has created a claim: it is in sight before the cache shows it, so that what it
// takes of limits and reservations is not promised twice.
func (p *Provisioner) Bought(c *karpv1.NodeClaim) { p.remember(c) }

// Awaited reports whether pods that are not bound yet, or are still to come, were planned on the claim.
func (p *Provisioner) Awaited(claim string) bool { return p.ledger.holds(claim) }

// Waits reports whether a pod is about to be planned; known is false for one that has not failed to be scheduled yet.
func (p *Provisioner) Waits(pod types.UID) (waits, known bool) {
	e, known := p.ledger.get(pod)
	return known && e.state == waiting, known
}

// View is the cluster as plans see it, with the room of buffers taken.
func (p *Provisioner) View(ctx context.Context) (*capacity.View, error) {
	return p.Views.Build(ctx, view.Pending{Claims: p.recentClaims(), Reserved: p.promised()})
}

// Pod converts a pod as views do.
func (p *Provisioner) Pod(pod *corev1.Pod) *capacity.Pod { return p.Views.Pod(pod) }

// reserved are the pods every claim has to have room for: those planned on it and those held there.
func (p *Provisioner) reserved() map[string][]*corev1.Pod {
	out := p.ledger.reserved()
	p.mu.Lock()
	defer p.mu.Unlock()
	return joined(out, p.held)
}

// Hypotheses describes the nodes of a plan that do not exist yet, and its placements in plan order, for the judge. pods are
// those of the plan, by UID.
func (p *Provisioner) Hypotheses(v *capacity.View, r *plan.Result, pods Pods) ([]hypothesis.Node, []hypothesis.Trial) {
	pods.Reserved, pods.Class = p.promised(), p.classOf
	return hypotheses(v, r, pods)
}
