// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AppLabel is the label by which built workloads select their pods; its value is the workload's name.
const AppLabel = "app"

// DeploymentBuilder builds a Deployment.
type DeploymentBuilder struct {
	Meta[*DeploymentBuilder]
	deployment *appsv1.Deployment
}

// Deployment starts a Deployment of one replica in namespace default, whose pods are [Pod] until Template says otherwise.
func Deployment(name string) *DeploymentBuilder {
	one := int32(1)
	d := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one,
			Selector: selector(map[string]string{AppLabel: name}),
			Template: template(name, Pod(name)),
		},
	}
	b := &DeploymentBuilder{deployment: d}
	b.Meta = Meta[*DeploymentBuilder]{self: b, object: &d.ObjectMeta}
	return b
}

// Obj returns the Deployment.
func (b *DeploymentBuilder) Obj() *appsv1.Deployment { return b.deployment.DeepCopy() }

// Replicas sets the number of replicas.
func (b *DeploymentBuilder) Replicas(n int32) *DeploymentBuilder {
	b.deployment.Spec.Replicas = &n
	return b
}

// Template makes the Deployment's pods like the given one.
func (b *DeploymentBuilder) Template(p *PodBuilder) *DeploymentBuilder {
	b.deployment.Spec.Template = template(b.deployment.Name, p)
	return b
}

// DaemonSetBuilder builds a DaemonSet.
type DaemonSetBuilder struct {
	Meta[*DaemonSetBuilder]
	daemonSet *appsv1.DaemonSet
}

// DaemonSet starts a DaemonSet in namespace kube-system, whose pods are [Pod] until Template says otherwise.
func DaemonSet(name string) *DaemonSetBuilder {
	d := &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem},
		Spec: appsv1.DaemonSetSpec{
			Selector: selector(map[string]string{AppLabel: name}),
			Template: template(name, Pod(name)),
		},
	}
	b := &DaemonSetBuilder{daemonSet: d}
	b.Meta = Meta[*DaemonSetBuilder]{self: b, object: &d.ObjectMeta}
	return b
}

// Obj returns the DaemonSet.
func (b *DaemonSetBuilder) Obj() *appsv1.DaemonSet { return b.daemonSet.DeepCopy() }

// Template makes the DaemonSet's pods like the given one.
func (b *DaemonSetBuilder) Template(p *PodBuilder) *DaemonSetBuilder {
	b.daemonSet.Spec.Template = template(b.daemonSet.Name, p)
	return b
}

// template takes labels, annotations and spec of the pod and adds the label the workload selects by.
func template(app string, p *PodBuilder) corev1.PodTemplateSpec {
	pod := p.Obj()
	put(&pod.Labels, AppLabel, app)
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations},
		Spec:       pod.Spec,
	}
}
