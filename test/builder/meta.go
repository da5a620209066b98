// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"maps"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Epoch is the time of every timestamp a builder fills in on its own.
func Epoch() time.Time { return time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC) }

// Meta are the metadata methods of every builder B of API objects.
type Meta[B any] struct {
	self   B
	object *metav1.ObjectMeta
}

// Namespace sets the namespace.
func (m Meta[B]) Namespace(ns string) B {
	m.object.Namespace = ns
	return m.self
}

// UID sets the UID, which is empty otherwise.
func (m Meta[B]) UID(uid string) B {
	m.object.UID = types.UID(uid)
	return m.self
}

// Label adds a label.
func (m Meta[B]) Label(key, value string) B {
	put(&m.object.Labels, key, value)
	return m.self
}

// Labels adds labels.
func (m Meta[B]) Labels(labels map[string]string) B {
	for k, v := range labels {
		put(&m.object.Labels, k, v)
	}
	return m.self
}

// Annotation adds an annotation.
func (m Meta[B]) Annotation(key, value string) B {
	put(&m.object.Annotations, key, value)
	return m.self
}

// Finalizer adds a finalizer.
func (m Meta[B]) Finalizer(name string) B {
	m.object.Finalizers = append(m.object.Finalizers, name)
	return m.self
}

// Generation sets the generation. Conditions set later record it as the generation they observed.
func (m Meta[B]) Generation(n int64) B {
	m.object.Generation = n
	return m.self
}

// Created sets the creation time.
func (m Meta[B]) Created(t time.Time) B {
	m.object.CreationTimestamp = metav1.NewTime(t)
	return m.self
}

// Deleted marks the object as being deleted since t.
func (m Meta[B]) Deleted(t time.Time) B {
	at := metav1.NewTime(t)
	m.object.DeletionTimestamp = &at
	return m.self
}

// OwnedBy adds a controlling owner reference.
func (m Meta[B]) OwnedBy(gvk metav1.GroupVersionKind, name, uid string) B {
	yes := true
	m.object.OwnerReferences = append(m.object.OwnerReferences, metav1.OwnerReference{
		APIVersion: metav1.GroupVersion{Group: gvk.Group, Version: gvk.Version}.String(),
		Kind:       gvk.Kind, Name: name, UID: types.UID(uid), Controller: &yes, BlockOwnerDeletion: &yes,
	})
	return m.self
}

func put(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}

func putQuantity(l *corev1.ResourceList, name corev1.ResourceName, quantity string) {
	if *l == nil {
		*l = corev1.ResourceList{}
	}
	(*l)[name] = resource.MustParse(quantity)
}

func selector(labels map[string]string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: maps.Clone(labels)}
}

// setCondition sets one condition of a Karpenter object to a status; without a reason, its type is the reason.
func setCondition(o status.Object, kind string, s metav1.ConditionStatus, reason, message string) {
	c := metav1.Condition{
		Type: kind, Status: s, Reason: reason, Message: message,
		ObservedGeneration: o.GetGeneration(), LastTransitionTime: metav1.NewTime(Epoch()),
	}
	if reason == "" {
		c.Reason = kind
	}
	conditions := o.GetConditions()
	for i := range conditions {
		if conditions[i].Type == kind {
			conditions[i] = status.Condition(c)
			return
		}
	}
	o.SetConditions(append(conditions, status.Condition(c)))
}
