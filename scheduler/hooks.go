// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// QueueListener is told what the scheduling queue does. All methods run in the
// scheduling goroutine, between two cycles, and must not block.
type QueueListener interface {
	// Leading is called once, before the first pod is taken from the queue. A
	// scheduler that stands by for a leader never calls it.
	Leading()
	// Drained is called when the active queue is empty: every pod that was
	// queued has had its cycle. It may be called many times in a row.
	Drained()
	// Queued is called when it is not empty, with how many pods are still to have
	// their cycle.
	Queued(n int)
}

// Hook connects core and listener with the scheduler, through the function
// fields it exports for this. Call it between building and running the
// scheduler, once. It fails if no profile carries the plugin.
func Hook(sched *scheduler.Scheduler, core Core, listener QueueListener) error {
	profiles := sets.New[string]()
	var handle framework.Framework
	for name, profile := range sched.Profiles {
		if lists(profile.ListPlugins().PostFilter) {
			profiles.Insert(name)
			handle = profile
		}
	}
	if handle == nil {
		return fmt.Errorf("hooking the scheduler: no profile enables plugin %q in postFilter", Name)
	}
	nodes := handle.SharedInformerFactory().Core().V1().Nodes().Lister()
	core.Gate.mu.Lock()
	core.Gate.current = cacheIsCurrent(sched.Cache, nodes)
	core.Gate.mu.Unlock()

	hookQueue(sched, listener)
	hookFailures(sched, core, profiles)
	hookOrder(sched, core, profiles)
	return nil
}

// hookQueue watches the queue from where the scheduler takes its next pod.
func hookQueue(sched *scheduler.Scheduler, listener QueueListener) {
	next := sched.NextEntity
	leading := false // only the scheduling goroutine gets here
	sched.NextEntity = func(logger klog.Logger) (framework.QueuedEntityInfo, error) {
		if !leading {
			leading = true
			listener.Leading()
		}
		if n := int(activePods()); n > 0 {
			listener.Queued(n)
		} else {
			listener.Drained()
		}
		return next(logger)
	}
}

// activePods reads the scheduler's own gauge, which changes with the queue's heap
// and costs nothing to read; the queue itself has no length to ask for. A gauge
// switched off with --disabled-metrics reads as zero, and then only the batch's
// debounce tells a burst from single pods.
func activePods() float64 {
	gauge, ok := metrics.ActivePods().(interface{ Write(*dto.Metric) error })
	if !ok {
		return 0
	}
	var m dto.Metric
	if err := gauge.Write(&m); err != nil {
		return 0
	}
	return m.GetGauge().GetValue()
}

// bookkeepingDelay is how long the scheduler's own handling of a parked pod's
// failure (an event, a status write, its return to the queue) waits for the pod's
// NodeClaim and launch, which go to the same API server. Nobody waits for it: the
// pod is parked.
const bookkeepingDelay = 30 * time.Millisecond

// hookFailures offers pods of a cluster that has no nodes at all, which the
// scheduler gives up on before any plugin runs and would retry as errors, lets
// the launch of parked pods go before the bookkeeping of their failure, and has
// the write of their status wait for their nodes' names.
func hookFailures(sched *scheduler.Scheduler, core Core, profiles sets.Set[string]) {
	next := sched.FailureHandler
	writes := map[string]*statusWrites{}
	for name := range profiles {
		writes[name] = newStatusWrites(core.Gate, sched.Profiles[name])
	}
	sched.FailureHandler = func(ctx context.Context, podFwk framework.Framework, podInfo *framework.QueuedPodInfo,
		status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time,
	) {
		pod := podInfo.Pod
		if profiles.Has(podFwk.ProfileName()) && pod.Spec.NodeName == "" && pod.Spec.SchedulingGroup == nil &&
			errors.Is(status.AsError(), scheduler.ErrNoNodesAvailable) {
			parked, node := core.offer(klog.FromContext(ctx), podFwk, pod, nothingTaken)
			if parked {
				status = parkedStatus(podInfo, node)
			}
			if node != "" {
				nominating = nomination(node)
			}
		}
		if w := writes[podFwk.ProfileName()]; w != nil && core.Gate.isClosed(pod.UID) {
			podFwk = held{podFwk, w}
		}
		// The pods of a group go back into the queue together, right after this.
		if pod.Spec.SchedulingGroup == nil && core.Gate.book(pod.UID) {
			ctx := context.WithoutCancel(ctx)
			core.Gate.clock.AfterFunc(bookkeepingDelay, func() {
				if node := core.Gate.settle(pod.UID); node != "" {
					nominating = nomination(node) // one write for both
				}
				next(ctx, podFwk, podInfo, status, nominating, start)
			})
			return
		}
		next(ctx, podFwk, podInfo, status, nominating, start)
	}
}

// parkedStatus is the failure a parked pod would have had if there had been a
// node to look at: unschedulable by our plugin, and so not an error with a
// backoff of its own.
func parkedStatus(podInfo *framework.QueuedPodInfo, node string) *fwk.Status {
	return fwk.NewStatus(fwk.Unschedulable).WithError(&framework.FitError{
		Pod: podInfo.Pod,
		Diagnosis: framework.Diagnosis{
			NodeToStatus:         framework.NewDefaultNodeToStatus(),
			UnschedulablePlugins: sets.New(Name),
			PostFilterMsg:        parkedReason(node),
		},
	})
}

// cacheIsCurrent compares the scheduler's cache with the informer that feeds it.
func cacheIsCurrent(cache internalcache.Cache, nodes corelisters.NodeLister) func(string) bool {
	return func(name string) bool {
		want, err := nodes.Get(name)
		if err != nil {
			return false
		}
		have, err := cache.GetNode(name)
		if err != nil || have.Node() == nil {
			return false
		}
		return have.Node().ResourceVersion == want.ResourceVersion
	}
}
