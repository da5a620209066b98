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
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
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
	// offered again when a cycle fails after its release.
	Offer(pod *corev1.Pod) (parked bool, node string)
}

// Core is what all instances of the plugin and the hooks share.
type Core struct {
	Sink    Sink
	Gate    *Gate
	Metrics *Metrics
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
		return &Plugin{core: core, handle: h}, nil
	}
}

// Plugin is the Slipway scheduling plugin. It belongs last in PostFilter, which
// is where multiPoint puts it: preemption goes first, and what preemption can
// solve is not bought.
type Plugin struct {
	core   Core
	handle fwk.PodActivator
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
func (p *Plugin) PostFilter(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if pod.Spec.NodeName != "" {
		// A bound pod whose resize does not fit: no new node helps it.
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	parked, node := p.core.offer(klog.FromContext(ctx), p.handle, pod)
	result := &fwk.PostFilterResult{NominatingInfo: nomination(node)}
	if !parked {
		return result, fwk.NewStatus(fwk.Unschedulable)
	}
	return result, fwk.NewStatus(fwk.Unschedulable, parkedReason(node))
}

// offer closes the gate, asks the sink and, if the pod is parked, activates it:
// that makes the queue run PreEnqueue as soon as the pod is back (an activation
// of a pod in flight is remembered), and not at the next event that concerns it.
func (c Core) offer(logger klog.Logger, activator fwk.PodActivator, pod *corev1.Pod) (parked bool, node string) {
	start := c.Gate.clock.Now()
	defer func() { c.Metrics.PostFilter.Observe(c.Gate.clock.Since(start).Seconds()) }()

	if c.Gate.enter(pod) == entryRetry {
		parked = true
		_, node = c.Gate.state(pod.UID)
	} else {
		parked, node = c.ask(pod)
	}
	if parked {
		// Not in the cycle: activation waits for the queue's lock, which a burst of new pods keeps busy.
		go func() {
			activator.Activate(logger, map[string]*corev1.Pod{framework.GetPodNamespacedName(pod): pod})
		}()
	}
	return parked, node
}

func (c Core) ask(pod *corev1.Pod) (parked bool, node string) {
	parked, node = c.Sink.Offer(pod)
	if !parked {
		c.Gate.Forget(pod.UID)
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
