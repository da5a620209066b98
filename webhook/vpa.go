// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-sh/slipway/webhook/rules"
)

// recommendation reads a VerticalPodAutoscaler (autoscaling.k8s.io/v1). What cannot be read is left out. Without an update
// mode it is active, its API's default.
func recommendation(u *unstructured.Unstructured) rules.Recommendation {
	out := rules.Recommendation{Name: u.GetName(), Target: map[string]corev1.ResourceList{}, Skips: map[string]bool{}}
	mode, _, _ := unstructured.NestedString(u.Object, "spec", "updatePolicy", "updateMode")
	out.Active = mode != "Off"
	policies, _, _ := unstructured.NestedSlice(u.Object, "spec", "resourcePolicy", "containerPolicies")
	for _, p := range policies {
		m, ok := p.(map[string]any)
		if !ok {
			continue
		}
		name, _, _ := unstructured.NestedString(m, "containerName")
		if mode, _, _ := unstructured.NestedString(m, "mode"); mode == "Off" {
			out.Skips[name] = true
		}
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "recommendation", "containerRecommendations")
	for _, r := range list {
		m, ok := r.(map[string]any)
		if !ok {
			continue
		}
		name, _, _ := unstructured.NestedString(m, "containerName")
		target, _, _ := unstructured.NestedStringMap(m, "target")
		amounts := corev1.ResourceList{}
		for res, value := range target {
			if q, err := resource.ParseQuantity(value); err == nil {
				amounts[corev1.ResourceName(res)] = q
			}
		}
		out.Target[name] = amounts
	}
	return out
}
