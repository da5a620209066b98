// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// Name is the plugin's name in scheduler configuration and in pod conditions.
const Name = "Slipway"

// Sink takes pods that fit on no node.
type Sink interface {
	// Offer hands over the pod, which is owned by an informer and read-only. It
	// is called in the scheduling cycle and must return within microseconds,
	// without I/O. parked says the pod waits for capacity and its gate stays
	// closed until it is released; node is the node reserved for it, "" while
	// that is not known. A pod that is not parked is retried as the scheduler
	// retries any pod, and keeps its nomination if there is a node. A pod is
	// offered again when a cycle fails after its release. taken reports whether the
	// cycle found a node's room taken by other pods, and so not about to come free; it
	// costs nothing unless called.
	Offer(pod *corev1.Pod, taken func(node string) bool) (parked bool, node string)
}

// Core is what all instances of the plugin and the hooks share.
type Core struct {
	Sink    Sink
	Gate    *Gate
	Metrics *Metrics
	// Reservations may be nil: then room on new nodes is anybody's who is not kept out by nominations.
	Reservations Reservations
	// Groups may be nil: then no nodes are bought for pod groups.
	Groups GroupSink
}

// NewFactory returns the plugin's factory, for app.WithPlugin. The framework
// calls it once a profile; the arguments are decoded and checked each time.
func NewFactory(core Core) frameworkruntime.PluginFactory {
	return func(_ context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		args, err := DecodeArgs(obj)
		if err != nil {
			return nil, err
		}
		if err := core.Gate.bind(h, args.GateDeadline.Duration); err != nil {
			return nil, err
		}
		if fw, ok := h.(framework.Framework); ok && *args.ProvisionFirst {
			core.Gate.provisionFirst(fw.ProfileName())
		}
		return &Plugin{core: core, handle: h}, nil
	}
}

// Plugin is the Slipway scheduling plugin. It belongs last in PostFilter, which
// is where multiPoint puts it: preemption goes first, and what preemption can
// solve is not bought.
type Plugin struct {
	core   Core
	handle fwk.Handle
	sizes  sizes // used by Filter
}

var (
	_ fwk.PreEnqueuePlugin  = &Plugin{}
	_ fwk.PostFilterPlugin  = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
)

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// EventsToRegister returns none: a parked pod leaves its gate by [Gate.Release]
// only, so no cluster event needs to look at it.
func (*Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return nil, nil
}

// PreEnqueue keeps a parked pod out of the active and the backoff queue. It runs
// under the scheduling queue's lock.
func (p *Plugin) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	closed, node := p.core.Gate.state(pod.UID)
	if !closed {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, parkedReason(node))
}

// PostFilter offers the pod to the sink. The pod stays unschedulable in any
// case; a known node is returned as the nomination each time, because the last
// PostFilter plugin with an opinion wins and preemption's opinion, when it finds
// nothing, is to clear it.
func (p *Plugin) PostFilter(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, nodes fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if pod.Spec.NodeName != "" {
		// A bound pod whose resize does not fit: no new node helps it.
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	if p.waitsForVictims(pod) {
		// Preemption makes room for it already. No result: its nomination stays.
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	result, status, _ := p.postFilter(ctx, pod, nodes)
	return result, status
}

func (p *Plugin) postFilter(ctx context.Context, pod *corev1.Pod, nodes fwk.NodeToStatusReader) (_ *fwk.PostFilterResult, _ *fwk.Status, parked bool) {
	parked, node := p.core.offer(klog.FromContext(ctx), p.handle, pod, takenBy(nodes))
	result := &fwk.PostFilterResult{NominatingInfo: nomination(node)}
	switch {
	case parked:
		return result, fwk.NewStatus(fwk.Unschedulable, parkedReason(node)), true
	case node == "":
		// Nothing is planned for the pod: a nomination it still has is one of a plan that failed, or anybody's.
		result.NominatingInfo = &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride}
	}
	return result, fwk.NewStatus(fwk.Unschedulable), false
}

// waitsForVictims reports whether pods are being ended on the pod's nominated node
// for its sake: what keeps DefaultPreemption from choosing other victims.
func (p *Plugin) waitsForVictims(pod *corev1.Pod) bool {
	if pod.Status.NominatedNodeName == "" {
		return false
	}
	nodeInfo, err := p.handle.SnapshotSharedLister().NodeInfos().Get(pod.Status.NominatedNodeName)
	if err != nil {
		return false // a node that is still to come, or gone
	}
	for _, on := range nodeInfo.GetPods() {
		victim := on.GetPod()
		if corev1helpers.PodPriority(victim) < corev1helpers.PodPriority(pod) && preemption.PodTerminatingByPreemption(victim) {
			return true
		}
	}
	return false
}

// offer closes the gate, asks the sink and, if the pod is parked, activates it:
// that makes the queue run PreEnqueue as soon as the pod is back (an activation
// of a pod in flight is remembered), and not at the next event that concerns it.
func (c Core) offer(logger klog.Logger, activator fwk.PodActivator, pod *corev1.Pod, taken func(node string) bool) (parked bool, node string) {
	start := c.Gate.clock.Now()
	defer func() { c.Metrics.PostFilter.Observe(c.Gate.clock.Since(start).Seconds()) }()

	if c.Gate.enter(pod) == entryRetry {
		parked = true
		_, node = c.Gate.state(pod.UID)
	} else {
		parked, node = c.ask(pod, taken)
	}
	if parked {
		// Not in the cycle: activation waits for the queue's lock, which a burst of new pods keeps busy.
		go func() {
			activator.Activate(logger, map[string]*corev1.Pod{framework.GetPodNamespacedName(pod): pod})
		}()
	}
	return parked, node
}

// takenBy tells nodes whose resources, ports or promised room other pods have from
// those that refuse the pod for reasons that pass by themselves.
func takenBy(nodes fwk.NodeToStatusReader) func(node string) bool {
	return func(node string) bool {
		status := nodes.Get(node)
		if status == nil {
			return false
		}
		switch status.Plugin() {
		case names.NodeResourcesFit, names.NodePorts, Name:
			return true
		}
		return false
	}
}

// nothingTaken is for cycles that looked at no node.
func nothingTaken(string) bool { return false }

func (c Core) ask(pod *corev1.Pod, taken func(node string) bool) (parked bool, node string) {
	parked, node = c.Sink.Offer(pod, taken)
	if !parked {
		c.Gate.pass(pod.UID)
		c.Metrics.Offered.WithLabelValues("refused").Inc()
		return false, node
	}
	c.Metrics.Offered.WithLabelValues("parked").Inc()
	if node != "" {
		c.Gate.Reserve(pod.UID, node)
		return true, node
	}
	// The sink may have reserved a node on another goroutine meanwhile.
	_, node = c.Gate.state(pod.UID)
	return true, node
}

// nomination names a known node, and has no opinion otherwise.
func nomination(node string) *fwk.NominatingInfo {
	if node == "" {
		return &fwk.NominatingInfo{NominatingMode: fwk.ModeNoop}
	}
	return &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: node}
}

// parkedReason is shown in the pod's PodScheduled condition and its event.
func parkedReason(node string) string {
	if node == "" {
		return "waiting for Slipway to provide a node"
	}
	return fmt.Sprintf("waiting for node %q, provided by Slipway", node)
}

// bind takes a profile's deadline, the shortest of all profiles wins, and connects
// the gate with the scheduling queue and the pod informer, which all share.
func (g *Gate) bind(h fwk.Handle, deadline time.Duration) error {
	g.mu.Lock()
	first := g.activator == nil
	if first || deadline < g.deadline {
		g.deadline = deadline
	}
	g.activator = h
	g.mu.Unlock()
	if !first {
		return nil
	}
	if _, err := h.SharedInformerFactory().Core().V1().Pods().Informer().AddEventHandler(g.podEvents()); err != nil {
		return fmt.Errorf("watching pods for the gate: %w", err)
	}
	return nil
}

// podEvents forgets pods that are bound or deleted.
func (g *Gate) podEvents() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, obj any) {
			if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
				g.Forget(pod.UID)
			}
		},
		DeleteFunc: func(obj any) {
			if uid, ok := deletedUID(obj); ok {
				g.Forget(uid)
			}
		},
	}
}

func deletedUID(obj any) (types.UID, bool) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return "", false
	}
	return pod.UID, true
}
