// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// rejection is why a kubelet refuses a pod, in its words.
type rejection struct {
	reason, message string
}

// refusal applies the rules that look at the node's labels and taints. A refusal by the cached node is checked
// against the live one: whoever bound the pod may have seen a label or the end of a taint before this cache did.
func (k *Kubelet) refusal(ctx context.Context, pod *corev1.Pod, m *machine) (*rejection, error) {
	if _, _, err := runFor(pod); err != nil {
		return &rejection{"InvalidRunFor", err.Error()}, nil //nolint:nilerr // the pod's fault, told to its owner
	}
	if object, exists, err := k.nodes.GetStore().GetByKey(m.NodeName); err == nil && exists && mismatch(pod, object.(*corev1.Node)) == nil {
		return nil, nil
	}
	node, err := k.node.CoreV1().Nodes().Get(ctx, m.NodeName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading node: %w", err)
	}
	return mismatch(pod, node), nil
}

// mismatch compares a pod's selector, required affinity and tolerations with a node. A kubelet looks at NoExecute taints only.
func mismatch(pod *corev1.Pod, node *corev1.Node) *rejection {
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); !ok || err != nil {
		return &rejection{"NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"}
	}
	noExecute := func(t *corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }
	if _, found := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, noExecute, true); found {
		return &rejection{"TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"}
	}
	return nil
}

// podRequests is what a pod takes from a node, with itself as one of resource "pods".
func podRequests(pod *corev1.Pod) corev1.ResourceList {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	requests[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return requests
}

// shortage returns the first resource that does not suffice, in a kubelet's order. A resource that the node does
// not have at all is left to whoever scheduled the pod, as a kubelet leaves it.
func shortage(requests, used, allocatable corev1.ResourceList) *rejection {
	order := []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	var others []corev1.ResourceName
	for name := range requests {
		if !slices.Contains(order, name) {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	for _, name := range append(order, others...) {
		request, capacity := requests[name], allocatable[name]
		if _, has := allocatable[name]; !has || request.IsZero() {
			continue
		}
		sum := used[name].DeepCopy()
		sum.Add(request)
		if sum.Cmp(capacity) <= 0 {
			continue
		}
		inUse := used[name]
		return &rejection{"OutOf" + string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			name, amount(name, request), amount(name, inUse), amount(name, capacity))}
	}
	return nil
}

// amount is a quantity as a kubelet's message gives it: CPU in thousandths, all else in units.
func amount(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// add returns a+b; a is reused.
func add(a, b corev1.ResourceList) corev1.ResourceList {
	if a == nil {
		a = corev1.ResourceList{}
	}
	for name, quantity := range b {
		sum := a[name]
		sum.Add(quantity)
		a[name] = sum
	}
	return a
}

// sub returns a-b; a is reused.
func sub(a, b corev1.ResourceList) corev1.ResourceList {
	for name, quantity := range b {
		rest := a[name]
		rest.Sub(quantity)
		a[name] = rest
	}
	return a
}
