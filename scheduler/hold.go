// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	schedulerutil "k8s.io/kubernetes/pkg/scheduler/util"
	"k8s.io/utils/clock"
)

// Karpenter and Cluster Autoscaler buy for every pod whose condition says that it
// is unschedulable and that has no nominated node, whoever schedules it. So the
// condition of a parked pod is written together with its nomination, as soon as
// its node has a name: between the two they would buy a second node for it.

// holdLimit is how long the condition of a parked pod waits for its node's name.
// EC2 gives it in a second or two; where it takes longer than this, something is
// wrong, and people are to see why the pod waits.
const holdLimit = 30 * time.Second

// heldWrite is a status write that waits for the name of the pod's node.
type heldWrite struct {
	do    func(node string)
	timer clock.Timer
}

// hold keeps a status write of a parked pod until its node's name is known. If
// there is nothing to wait for, the write is left to the caller: node is the name,
// "" for a pod that is not parked.
func (g *Gate) hold(uid types.UID, do func(node string)) (node string, waits bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.pods[uid]
	if !ok || !p.closed {
		return "", false
	}
	if p.node != "" {
		return p.node, false
	}
	p.drop()
	w := &heldWrite{do: do}
	w.timer = g.clock.AfterFunc(holdLimit, func() { g.overdue(uid, w) })
	p.held = w
	return "", true
}

// overdue has a write that has waited for too long done without a name.
func (g *Gate) overdue(uid types.UID, w *heldWrite) {
	g.mu.Lock()
	p, ok := g.pods[uid]
	ok = ok && p.held == w
	if ok {
		p.held = nil
	}
	g.mu.Unlock()
	if ok {
		w.do("")
	}
}

// drop forgets the pod's held write: the pod gets another cycle, which tells anew,
// or is gone. The gate's lock is held.
func (p *gatedPod) drop() {
	if p.held != nil {
		p.held.timer.Stop()
		p.held = nil
	}
}

// held is a profile as the handling of a parked pod's failure sees it.
type held struct {
	framework.Framework
	writes *statusWrites
}

// APICacher implements fwk.Handle.
func (h held) APICacher() fwk.APICacher {
	return &heldCacher{APICacher: h.Framework.APICacher(), writes: h.writes}
}

// statusWrites has the status writes of parked pods wait for their nodes' names.
type statusWrites struct {
	gate   *Gate
	pods   corelisters.PodLister
	client kubernetes.Interface
	slots  chan struct{} // bounds the writes of the plain client
}

func newStatusWrites(gate *Gate, h fwk.Handle) *statusWrites {
	return &statusWrites{
		gate: gate, pods: h.SharedInformerFactory().Core().V1().Pods().Lister(), client: h.ClientSet(), slots: make(chan struct{}, nominationWorkers),
	}
}

// heldCacher is the scheduler's way to the API for one parked pod. What it embeds is
// nil where asynchronous API calls are off.
type heldCacher struct {
	fwk.APICacher
	writes *statusWrites
}

// PatchPodStatus writes the pod's status when the name of its node is known, and
// the nomination with it.
func (c *heldCacher) PatchPodStatus(pod *corev1.Pod, conditions []*corev1.PodCondition, nominating *fwk.NominatingInfo) (<-chan error, error) {
	write := func(node string) {
		if node != "" {
			nominating = nomination(node)
		}
		c.write(pod, conditions, nominating)
	}
	named := nominating.Mode() == fwk.ModeOverride && nominating.NominatedNodeName != ""
	if named {
		write("")
	} else if node, waits := c.writes.gate.hold(pod.UID, write); !waits {
		write(node)
	}
	return nil, nil
}

// write patches the status of the pod as it is now, unless it is bound or gone.
func (c *heldCacher) write(pod *corev1.Pod, conditions []*corev1.PodCondition, nominating *fwk.NominatingInfo) {
	now, err := c.writes.pods.Pods(pod.Namespace).Get(pod.Name)
	if err != nil || now.UID != pod.UID || now.Spec.NodeName != "" {
		return
	}
	if c.APICacher == nil {
		go c.writes.patch(now, conditions, nominating)
		return
	}
	// The dispatcher logs what comes of it.
	if _, err := c.APICacher.PatchPodStatus(now, conditions, nominating); err != nil {
		klog.Background().Error(err, "Writing the status of a parked pod failed", "pod", klog.KObj(now))
	}
}

// patch sends a status with the plain client, when there is a free slot.
func (w *statusWrites) patch(pod *corev1.Pod, conditions []*corev1.PodCondition, nominating *fwk.NominatingInfo) {
	w.slots <- struct{}{}
	defer func() { <-w.slots }()
	status := pod.Status.DeepCopy()
	for _, c := range conditions {
		podutil.UpdatePodCondition(status, c)
	}
	if nominating.Mode() == fwk.ModeOverride {
		status.NominatedNodeName = nominating.NominatedNodeName
	}
	if err := schedulerutil.PatchPodStatus(context.Background(), w.client, pod.Name, pod.Namespace, &pod.Status, status); err != nil {
		klog.Background().Error(err, "Writing the status of a parked pod failed", "pod", klog.KObj(pod))
	}
}
