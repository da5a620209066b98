// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"

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
		out = append(out, b.memo.class(b.daemonPod(ds), b.sign))
	}
	return out, nil
}

// daemonPod is the pod the DaemonSet's controller would create. Its UID stands for the set and for the LimitRanges that
// shape its pods, so that a change of either is seen.
func (b *Builder) daemonPod(ds *appsv1.DaemonSet) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: *ds.Spec.Template.ObjectMeta.DeepCopy(), Spec: *ds.Spec.Template.Spec.DeepCopy()}
	pod.Namespace = ds.Namespace
	pod.Generation = ds.Generation
	pod.Spec.NodeName = ""
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, controllerTolerations(pod.Spec.HostNetwork)...)
	pod.UID = types.UID("daemonset/" + string(ds.UID) + b.applyLimitRanges(pod))
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

// applyLimitRanges fills in requests as creation does: first a container's own limit stands in for a missing request (API
// defaulting), then the defaults of the namespace's LimitRanges (admission plugin LimitRanger). It returns the versions
// of the LimitRanges.
func (b *Builder) applyLimitRanges(pod *corev1.Pod) (versions string) {
	ranges, err := b.src.LimitRanges.LimitRanges(pod.Namespace).List(labels.Everything())
	if err != nil {
		ranges = nil
	}
	slices.SortFunc(ranges, func(a, b *corev1.LimitRange) int { return strings.Compare(a.Name, b.Name) })
	var defaults []corev1.ResourceList
	for _, lr := range ranges {
		versions += "/" + string(lr.UID) + "@" + lr.ResourceVersion
		for _, item := range lr.Spec.Limits {
			if item.Type == corev1.LimitTypeContainer {
				defaults = append(defaults, item.DefaultRequest)
			}
		}
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			r := &containers[i].Resources
			fill(&r.Requests, r.Limits)
			for _, d := range defaults {
				fill(&r.Requests, d)
			}
		}
	}
	return versions
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
