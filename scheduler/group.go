// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// GroupSink takes pods that are only of use together.
type GroupSink interface {
	// OfferGroup hands over the members of a group that have no node, under the rules of [Sink]. At least so many of the
	// group's members have to have a node for any of them to be of use, and all of these nodes the same value of the label
	// domain, if that is not "". scheduled are the members that have a node, as the scheduler counts them: those that it has
	// assumed there included. parked says that all of pods are.
	OfferGroup(group types.NamespacedName, least int, domain string, scheduled, pods []*corev1.Pod) (parked bool)
}

// RunPodGroupPostFilterPlugins offers the pods of a group together, when nothing else helps it. The scheduler calls it for
// groups of scheduling.k8s.io where the feature gate GenericWorkload is on. The extension point is wrapped, not joined:
// DefaultPreemption ends its chain when it finds no victims. In a cluster without nodes the others are not asked: there is
// nothing to preempt, and DynamicResources fails on a group of which no pod got as far as its PreFilter.
func (o *ordered) RunPodGroupPostFilterPlugins(ctx context.Context, state *framework.CycleState, info fwk.PodGroupInfo, try fwk.PodGroupSchedulingFunc) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	if nodes, err := o.SnapshotSharedLister().NodeInfos().List(); err == nil && len(nodes) == 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, o.plugin.offerGroup(ctx, info))
	}
	result, status := o.Framework.RunPodGroupPostFilterPlugins(ctx, state, info, try)
	if !status.IsRejected() {
		return result, status
	}
	return result, fwk.NewStatus(status.Code(), append(status.Reasons(), o.plugin.offerGroup(ctx, info))...)
}

// offerGroup closes the gates of a group's pods, offers them, and says what becomes of them.
func (p *Plugin) offerGroup(ctx context.Context, info fwk.PodGroupInfo) string {
	group, pods := info.GetPodGroup(), info.GetUnscheduledPods()
	if why := unsupported(group); p.core.Groups == nil || why != "" {
		return why
	}
	for _, pod := range pods {
		p.core.Gate.enter(pod)
	}
	key := types.NamespacedName{Namespace: info.GetNamespace(), Name: info.GetName()}
	if !p.core.Groups.OfferGroup(key, least(group), domain(group), p.scheduled(key), pods) {
		for _, pod := range pods {
			p.core.Gate.pass(pod.UID)
		}
		p.core.Metrics.Offered.WithLabelValues("refused").Add(float64(len(pods)))
		return "no nodes can be bought for the group"
	}
	p.core.Metrics.Offered.WithLabelValues("parked").Add(float64(len(pods)))
	all := make(map[string]*corev1.Pod, len(pods))
	for _, pod := range pods {
		all[framework.GetPodNamespacedName(pod)] = pod
	}
	go p.handle.Activate(klog.FromContext(ctx), all) // see Core.offer
	return fmt.Sprintf("waiting for Slipway to provide nodes for %d pods of the group", len(pods))
}

// scheduled are the members of a group that have a node: what the scheduler itself holds against the group's minimum.
func (p *Plugin) scheduled(group types.NamespacedName) []*corev1.Pod {
	state, err := p.handle.SnapshotSharedLister().PodGroupStates().Get(group.Namespace, group.Name)
	if err != nil {
		return nil // the group is gone
	}
	return state.ScheduledPods()
}

// unsupported says why no nodes are bought for a group, "" if they are.
func unsupported(group *schedulingv1beta1.PodGroup) string {
	switch {
	case group == nil:
		return "Slipway buys no nodes for composite pod groups"
	case group.Spec.SchedulingConstraints != nil && len(group.Spec.SchedulingConstraints.Topology) > 1:
		return "Slipway buys no nodes for pod groups with several topology constraints (spec.schedulingConstraints.topology)"
	case domain(group) == corev1.LabelHostname:
		return "Slipway buys no nodes for pod groups that have to be on one node (spec.schedulingConstraints.topology, kubernetes.io/hostname)"
	}
	return ""
}

// domain is the node label whose value has to be the same for all of the group's nodes, "" for none.
func domain(group *schedulingv1beta1.PodGroup) string {
	if c := group.Spec.SchedulingConstraints; c != nil && len(c.Topology) > 0 {
		return c.Topology[0].Key
	}
	return ""
}

// least is how many members of the group have to have a node.
func least(group *schedulingv1beta1.PodGroup) int {
	if gang := group.Spec.SchedulingPolicy.Gang; gang != nil {
		return int(gang.MinCount)
	}
	return 1
}
