// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"context"
	"fmt"
	"math"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	buffersv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
)

// template is the pod a buffer's chunks are like, and where it is from.
type template struct {
	pod        *corev1.PodTemplateSpec
	uid        types.UID
	generation int64
	// name is that of the PodTemplate, "" for the template of a workload, which has so many replicas.
	name     string
	replicas int
}

// problem is why a buffer cannot be provided for, with the reason of its condition.
type problem struct{ reason, message string }

func (p problem) Error() string { return p.message }

// templateOf reads what the buffer refers to: a PodTemplate, or a workload of group apps.
func (b *Buffers) templateOf(ctx context.Context, o *buffersv1beta1.CapacityBuffer) (template, error) {
	get := func(name, reason string, into client.Object) error {
		err := b.Kube.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: name}, into)
		if apierrors.IsNotFound(err) {
			return problem{reason, err.Error()}
		}
		return err
	}
	switch ref := o.Spec.ScalableRef; {
	case o.Spec.PodTemplateRef != nil && ref != nil:
		return template{}, problem{reasonResolutionFailed, "spec.podTemplateRef and spec.scalableRef are both set; leave one out"}
	case o.Spec.PodTemplateRef != nil:
		t := &corev1.PodTemplate{}
		err := get(o.Spec.PodTemplateRef.Name, reasonTemplateNotFound, t)
		return template{pod: &t.Template, uid: t.UID, generation: t.Generation, name: t.Name}, err
	case ref == nil:
		return template{}, problem{reasonResolutionFailed, "neither spec.podTemplateRef nor spec.scalableRef is set"}
	case ref.APIGroup != "" && ref.APIGroup != appsv1.GroupName:
		return template{}, problem{reasonResolutionFailed, fmt.Sprintf("spec.scalableRef.apiGroup %q is not served; use %q or a podTemplateRef", ref.APIGroup, appsv1.GroupName)}
	case ref.Kind == buffersv1beta1.KindDeployment:
		d := &appsv1.Deployment{}
		err := get(ref.Name, reasonScalableNotFound, d)
		return template{pod: &d.Spec.Template, uid: d.UID, generation: d.Generation, replicas: replicas(d.Spec.Replicas)}, err
	case ref.Kind == buffersv1beta1.KindStatefulSet:
		s := &appsv1.StatefulSet{}
		err := get(ref.Name, reasonScalableNotFound, s)
		return template{pod: &s.Spec.Template, uid: s.UID, generation: s.Generation, replicas: replicas(s.Spec.Replicas)}, err
	case ref.Kind == buffersv1beta1.KindReplicaSet:
		s := &appsv1.ReplicaSet{}
		err := get(ref.Name, reasonScalableNotFound, s)
		return template{pod: &s.Spec.Template, uid: s.UID, generation: s.Generation, replicas: replicas(s.Spec.Replicas)}, err
	default:
		return template{}, problem{reasonResolutionFailed, fmt.Sprintf("spec.scalableRef.kind %q is not served; use Deployment, StatefulSet, ReplicaSet or a podTemplateRef", ref.Kind)}
	}
}

// chunksOf is how many chunks a buffer has, as Cluster Autoscaler and Karpenter count: the larger of replicas and of the
// percentage, rounded up, of the workload's replicas, and no more than fit into the limits; those alone if nothing else is said.
func chunksOf(spec buffersv1beta1.CapacityBufferSpec, t template) int {
	n, said := 0, false
	if spec.Replicas != nil {
		n, said = int(*spec.Replicas), true
	}
	if spec.Percentage != nil && t.name == "" && t.replicas > 0 {
		share := int(math.Ceil(float64(t.replicas) * float64(*spec.Percentage) / 100))
		n, said = max(n, share), true
	}
	if within, bounded := fitting(corev1.ResourceList(spec.Limits), t.pod); bounded && (!said || within < n) {
		n = within
	}
	return min(max(n, 0), mostChunks)
}

// fitting is how many pods of the template the limits hold; bounded is false if they limit nothing that it asks for.
func fitting(limits corev1.ResourceList, t *corev1.PodTemplateSpec) (n int, bounded bool) {
	requests := resourcehelper.PodRequests(&corev1.Pod{Spec: t.Spec}, resourcehelper.PodResourcesOptions{})
	n = math.MaxInt
	for name, limit := range limits {
		if request := requests[name]; request.Sign() > 0 {
			n, bounded = min(n, int(limit.AsApproximateFloat64()/request.AsApproximateFloat64()+1e-9)), true
		}
	}
	return n, bounded
}
