// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// daemons converts every DaemonSet to the class its pods will have: the template, the LimitRange defaults of its
// namespace, and the tolerations its controller adds.
func (b *Builder) daemons() ([]*capacity.Class, error) {
	sets, err := b.src.DaemonSets.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing DaemonSets: %w", err)
	}
	out := make([]*capacity.Class, 0, len(sets))
	for _, ds := range sets {
		pod := b.daemonPod(ds)
		out = append(out, b.memo.class(pod, b.reach, b.namespaces))
	}
	return out, nil
}

// daemonPod is the pod the DaemonSet's controller would create; its UID stands for the set.
func (b *Builder) daemonPod(ds *appsv1.DaemonSet) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: *ds.Spec.Template.ObjectMeta.DeepCopy(), Spec: *ds.Spec.Template.Spec.DeepCopy()}
	pod.Namespace = ds.Namespace
	pod.UID = types.UID("daemonset/" + string(ds.UID))
	pod.Generation = ds.Generation
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, controllerTolerations(pod.Spec.HostNetwork)...)
	b.applyLimitRanges(pod)
	return pod
}

// controllerTolerations are those the DaemonSet controller adds to every pod (pkg/controller/daemon/util).
func controllerTolerations(hostNetwork bool) []corev1.Toleration {
	tol := func(key string, effect corev1.TaintEffect) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
	}
	out := []corev1.Toleration{
		tol(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute),
		tol(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute),
		tol(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule),
		tol(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule),
		tol(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule),
		tol(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule),
	}
	if hostNetwork {
		out = append(out, tol(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule))
	}
	return out
}

// applyLimitRanges fills in requests as the LimitRanger admission plugin does on creation: a container's limit stands in
// for a missing request (API defaulting), then the namespace's default request.
func (b *Builder) applyLimitRanges(pod *corev1.Pod) {
	ranges, err := b.src.LimitRanges.LimitRanges(pod.Namespace).List(labels.Everything())
	if err != nil {
		ranges = nil
	}
	each := func(c *corev1.Container) {
		for _, lr := range ranges {
			for _, item := range lr.Spec.Limits {
				if item.Type == corev1.LimitTypeContainer {
					fill(&c.Resources.Limits, item.Default)
				}
			}
		}
		for _, lr := range ranges {
			for _, item := range lr.Spec.Limits {
				if item.Type == corev1.LimitTypeContainer && c.Resources.Requests == nil {
					c.Resources.Requests = corev1.ResourceList{}
				}
				if item.Type == corev1.LimitTypeContainer {
					fill(&c.Resources.Requests, item.DefaultRequest)
				}
			}
		}
		fill(&c.Resources.Requests, c.Resources.Limits)
	}
	for i := range pod.Spec.InitContainers {
		each(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		each(&pod.Spec.Containers[i])
	}
}

func fill(list *corev1.ResourceList, defaults corev1.ResourceList) {
	for name, q := range defaults {
		if _, ok := (*list)[name]; ok {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = q
	}
}
