// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// daemons converts every DaemonSet to the class its pods will have: the template, the LimitRange defaults of its
// namespace, what its runtime class and admission add, and the tolerations its controller adds. The UID a pod is known by
// stands for the set and for what else shapes its pods, so that a change of any is seen.
func (b *Builder) daemons() ([]*capacity.Class, error) {
	sets, err := b.src.DaemonSets.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing DaemonSets: %w", err)
	}
	slices.SortFunc(sets, func(a, b *appsv1.DaemonSet) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	out, made := make([]*capacity.Class, 0, len(sets)), make(map[*appsv1.DaemonSet]daemon, len(sets))
	for _, ds := range sets {
		if !ds.DeletionTimestamp.IsZero() {
			continue // its controller makes no more pods
		}
		ranges, class := b.limitRanges(ds.Namespace), b.runtimeClass(&ds.Spec.Template.Spec)
		d := b.made[ds]
		shape := versions(ranges, class)
		if b.src.Admission != nil {
			shape += "/" + b.src.Admission.Version(ds.Namespace)
		}
		if d.class == nil || !d.stable || d.shape != shape {
			pod := daemonPod(ds, ranges, class)
			if b.src.Admission != nil {
				b.src.Admission.Admit(pod, metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet")))
			}
			pod.UID = types.UID("daemonset/" + string(ds.UID) + shape)
			d.shape = shape
			d.class, d.stable = b.memo.class(pod, b.sign)
		}
		made[ds] = d
		out = append(out, d.class)
	}
	b.made = made
	return out, nil
}

// daemon is the class of a DaemonSet's pods, which holds until the set is another object or what else shapes its pods is.
type daemon struct {
	shape  string
	class  *capacity.Class
	stable bool
}

// versions identifies LimitRanges and a runtime class, which may be nil.
func versions(ranges []*corev1.LimitRange, class *nodev1.RuntimeClass) string {
	var out strings.Builder
	for _, lr := range ranges {
		out.WriteString("/" + string(lr.UID) + "@" + lr.ResourceVersion)
	}
	if class != nil {
		out.WriteString("/" + string(class.UID) + "@" + class.ResourceVersion)
	}
	return out.String()
}

// limitRanges are those of a namespace, sorted by name.
func (b *Builder) limitRanges(namespace string) []*corev1.LimitRange {
	ranges, err := b.src.LimitRanges.LimitRanges(namespace).List(labels.Everything())
	if err != nil {
		return nil
	}
	slices.SortFunc(ranges, func(a, b *corev1.LimitRange) int { return strings.Compare(a.Name, b.Name) })
	return ranges
}

// runtimeClass is the one the pods name, nil if they name none or it is not there: then they are refused until it is.
func (b *Builder) runtimeClass(spec *corev1.PodSpec) *nodev1.RuntimeClass {
	if spec.RuntimeClassName == nil || b.src.RuntimeClasses == nil {
		return nil
	}
	rc, err := b.src.RuntimeClasses.Get(*spec.RuntimeClassName)
	if err != nil {
		return nil
	}
	return rc
}

// daemonPod is the pod the DaemonSet's controller would create, without a UID.
func daemonPod(ds *appsv1.DaemonSet, ranges []*corev1.LimitRange, class *nodev1.RuntimeClass) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: *ds.Spec.Template.ObjectMeta.DeepCopy(), Spec: *ds.Spec.Template.Spec.DeepCopy()}
	pod.Namespace = ds.Namespace
	pod.Generation = ds.Generation
	if node := pod.Spec.NodeName; node != "" { // its controller makes pods for this node only
		pod.Spec.NodeName = ""
		onlyOn(pod, node)
	}
	if pod.Spec.HostNetwork {
		defaultHostPorts(pod)
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, controllerTolerations(pod.Spec.HostNetwork)...)
	applyLimitRanges(pod, ranges)
	applyRuntimeClass(pod, class)
	return pod
}

// defaultHostPorts gives every port of a pod on the host network its number there (API defaulting of pods; templates are
// stored without).
func defaultHostPorts(pod *corev1.Pod) {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range containers {
			for i := range c.Ports {
				if c.Ports[i].HostPort == 0 {
					c.Ports[i].HostPort = c.Ports[i].ContainerPort
				}
			}
		}
	}
}

// onlyOn adds the node's name to every affinity term.
func onlyOn(pod *corev1.Pod, node string) {
	name := corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	na := pod.Spec.Affinity.NodeAffinity
	if na.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		na.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{name}}}}
		return
	}
	terms := na.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		if len(terms[i].MatchExpressions)+len(terms[i].MatchFields) > 0 { // an empty term matches no node and has to stay empty
			terms[i].MatchFields = append(terms[i].MatchFields, name)
		}
	}
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
// defaulting), then the defaults of the namespace's LimitRanges (admission plugin LimitRanger), then what pod-level limits
// imply for pod-level requests.
func applyLimitRanges(pod *corev1.Pod, ranges []*corev1.LimitRange) {
	defaults := make([]corev1.ResourceList, len(ranges))
	for i, lr := range ranges {
		defaults[i] = containerDefaults(lr)
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
	podLevelRequests(pod)
}

// containerDefaults are the requests a LimitRange gives containers without them; of several items the last one that names a
// resource counts. What is not a positive quantity gives nothing: it would make room on the node.
func containerDefaults(lr *corev1.LimitRange) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, item := range lr.Spec.Limits {
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		for name, q := range item.DefaultRequest {
			if q.Sign() >= 0 {
				out[name] = q
			}
		}
	}
	return out
}

// podLevelRequests sets the requests of a pod that has pod-level limits only: the sum of its containers where they ask for
// something, else the limit (API defaulting, defaultPodRequests; huge pages cannot be overcommitted and take the limit).
func podLevelRequests(pod *corev1.Pod) {
	if pod.Spec.Resources == nil || len(pod.Spec.Resources.Limits) == 0 {
		return
	}
	sum := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	for name := range sum {
		if !resourcehelper.IsSupportedPodLevelResource(name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			delete(sum, name)
		}
	}
	fill(&pod.Spec.Resources.Requests, sum)
	limits := corev1.ResourceList{}
	for name, q := range pod.Spec.Resources.Limits {
		if resourcehelper.IsSupportedPodLevelResource(name) {
			limits[name] = q
		}
	}
	fill(&pod.Spec.Resources.Requests, limits)
}

// applyRuntimeClass adds what the pod's runtime class, nil if it has none, brings: overhead and node selector (admission
// plugin RuntimeClass). The class's tolerations come too late for daemonsets: whether a node's taints are tolerated is
// decided by the DaemonSet's controller, which sees the template only.
func applyRuntimeClass(pod *corev1.Pod, rc *nodev1.RuntimeClass) {
	if rc == nil {
		return
	}
	if rc.Overhead != nil && pod.Spec.Overhead == nil {
		pod.Spec.Overhead = rc.Overhead.PodFixed
	}
	if s := rc.Scheduling; s != nil {
		for k, v := range s.NodeSelector {
			if pod.Spec.NodeSelector == nil {
				pod.Spec.NodeSelector = map[string]string{}
			}
			pod.Spec.NodeSelector[k] = v
		}
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
