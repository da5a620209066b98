// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Pods of other schedulers are demand when their scheduler has written that they fit nowhere. Nothing parks them: their
// scheduler tries them as it always does, and binds them when their node is there. Their nomination is their scheduler's
// business, too.

// servedGrace is how long the scheduler of a served pod may take to bind it once its node is usable and it has said again that
// the pod fits nowhere, before the pod counts as new demand: kube-scheduler's longest backoff and its flush, with room.
// A scheduler that says nothing may be down; more nodes would not help its pods.
const servedGrace = 30 * time.Second

// serves reports whether the pod belongs to another scheduler that is served.
func (p *Provisioner) serves(pod *corev1.Pod) bool { return p.Serve.Has(pod.Spec.SchedulerName) }

// serveAll takes all served pods that wait when this process begins to lead.
func (p *Provisioner) serveAll() error {
	if p.Serve.Len() == 0 {
		return nil
	}
	pods, err := p.Pods.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing pods of other schedulers: %w", err)
	}
	for _, pod := range pods {
		p.serve(pod)
	}
	return nil
}

// serve takes a served pod that its scheduler has given up on for now, unless another process leads.
func (p *Provisioner) serve(pod *corev1.Pod) {
	if !p.serves(pod) || !unschedulable(pod) || !p.leads() {
		return
	}
	if e, ok := p.ledger.get(pod.UID); ok && e.state == planned {
		if !e.usable.IsZero() && verdict(e.pod) != verdict(pod) {
			p.ledger.failed(pod)
		}
		return
	}
	// A pod that was refused a moment ago is left as it is.
	if _, _, fresh := p.ledger.offer(pod, p.Clock.Now(), nil); fresh {
		p.batch.Requeue(pod)
	}
}

// unschedulable reports whether the pod's scheduler has written that no node takes it, and nothing of its own will help it:
// a nomination means that others are being preempted for it.
func unschedulable(pod *corev1.Pod) bool {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || pod.Status.NominatedNodeName != "" {
		return false
	}
	c := verdict(pod)
	return c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
}

// verdict is what the pod's scheduler has last written of it.
func verdict(pod *corev1.Pod) (v corev1.PodCondition) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			v.Status, v.Reason, v.Message = c.Status, c.Reason, c.Message
		}
	}
	return v
}

// failed notes that the pod's scheduler does not bind it although its node is usable.
func (l *ledger) failed(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.pods[pod.UID]; e != nil && e.state == planned {
		e.pod, e.failed = pod, true
		delete(l.lists, e.claim)
	}
}

// overdue takes served pods back that have not been bound to their usable node.
func (p *Provisioner) overdue() {
	if p.Serve.Len() == 0 {
		return
	}
	now := p.Clock.Now()
	for uid, e := range p.ledger.all() {
		if e.state == planned && e.failed && now.Sub(e.usable) > servedGrace && p.serves(e.pod) {
			if pod := p.ledger.redo(uid); pod != nil {
				p.batch.Requeue(pod)
			}
		}
	}
}
