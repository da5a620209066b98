// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ranges are the LimitRanges of a namespace.
type ranges []*corev1.LimitRange

func newRanges(namespace string, f *Facts) ranges {
	if f.LimitRanges == nil {
		return nil
	}
	return f.LimitRanges(namespace)
}

// each calls fn for every item of the type that says something about containers or pods.
func (r ranges) each(t corev1.LimitType, fn func(name string, item *corev1.LimitRangeItem)) {
	for _, lr := range r {
		for i := range lr.Spec.Limits {
			if lr.Spec.Limits[i].Type == t {
				fn(lr.Name, &lr.Spec.Limits[i])
			}
		}
	}
}

// request is what the LimitRanges give a container: the first defaultRequest, else the first default limit, which the API
// server makes a request too.
func (r ranges) request(name corev1.ResourceName) (q resource.Quantity, from string, ok bool) {
	r.each(corev1.LimitTypeContainer, func(lr string, item *corev1.LimitRangeItem) {
		if v, has := item.DefaultRequest[name]; has && !ok {
			q, from, ok = v, lr, true
		}
	})
	r.each(corev1.LimitTypeContainer, func(lr string, item *corev1.LimitRangeItem) {
		if v, has := item.Default[name]; has && !ok {
			q, from, ok = v, lr, true
		}
	})
	return q, from, ok
}

// clamp brings a container's request into the bounds of all LimitRanges; why says that there is no value inside them. others
// is what the pod's other containers ask for, which counts against bounds for pods.
func (r ranges) clamp(q resource.Quantity, name corev1.ResourceName, others resource.Quantity) (out resource.Quantity, why string) {
	var least, most *resource.Quantity
	var leastOf, mostOf string
	r.each(corev1.LimitTypeContainer, func(lr string, item *corev1.LimitRangeItem) {
		if v, ok := item.Min[name]; ok && (least == nil || v.Cmp(*least) > 0) {
			least, leastOf = &v, lr
		}
		if v, ok := item.Max[name]; ok && (most == nil || v.Cmp(*most) < 0) {
			most, mostOf = &v, lr
		}
	})
	r.each(corev1.LimitTypePod, func(lr string, item *corev1.LimitRangeItem) {
		if v, ok := item.Max[name]; ok {
			v = v.DeepCopy()
			v.Sub(others)
			if most == nil || v.Cmp(*most) < 0 {
				most, mostOf = &v, lr
			}
		}
	})
	if most != nil && most.Sign() <= 0 {
		return q, fmt.Sprintf("LimitRange %q leaves nothing for it", mostOf)
	}
	if least != nil && most != nil && least.Cmp(*most) > 0 {
		return q, fmt.Sprintf("LimitRange %q wants at least %s and %q allows at most %s", leastOf, least, mostOf, most)
	}
	if least != nil && q.Cmp(*least) < 0 {
		q = *least
	}
	if most != nil && q.Cmp(*most) > 0 {
		q = *most
	}
	return q, ""
}
