// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scaleReader reads scale subresources of any kind. The client's REST mapper finds the resource, also of kinds that are
// installed later.
type scaleReader struct{ kube client.Client }

// Scale implements demand.ScaleReader.
func (r scaleReader) Scale(ctx context.Context, namespace string, owner metav1.OwnerReference) (*autoscalingv1.Scale, error) {
	obj, answer := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	obj.SetAPIVersion(owner.APIVersion)
	obj.SetKind(owner.Kind)
	obj.SetNamespace(namespace)
	obj.SetName(owner.Name)
	if err := r.kube.SubResource("scale").Get(ctx, obj, answer); err != nil {
		return nil, err
	}
	scale := &autoscalingv1.Scale{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(answer.Object, scale); err != nil {
		return nil, fmt.Errorf("reading the scale of %s %q: %w", owner.Kind, namespace+"/"+owner.Name, err)
	}
	return scale, nil
}
