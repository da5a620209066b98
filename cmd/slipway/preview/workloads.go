// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reads reports whether a view or the judge looks at objects of this kind.
func reads(o client.Object) bool {
	switch o.(type) {
	case *corev1.Namespace, *corev1.LimitRange, *corev1.PersistentVolume, *corev1.PersistentVolumeClaim, *appsv1.DaemonSet,
		*storagev1.StorageClass, *storagev1.CSINode, *nodev1.RuntimeClass:
		return true
	}
	return false
}

// podsOf are the pods a controller would create for the object, completed as the API server completes them. workload is
// false if objects of its kind have none. A CronJob stands for one run.
func podsOf(o client.Object) (pods []*corev1.Pod, workload bool) {
	switch o := o.(type) {
	case *corev1.Pod:
		pods = []*corev1.Pod{o}
	case *appsv1.Deployment:
		pods = replicas(o, ptr.Deref(o.Spec.Replicas, 1), &o.Spec.Template)
	case *appsv1.ReplicaSet:
		pods = replicas(o, ptr.Deref(o.Spec.Replicas, 1), &o.Spec.Template)
	case *appsv1.StatefulSet:
		pods = replicas(o, ptr.Deref(o.Spec.Replicas, 1), &o.Spec.Template)
		for _, p := range pods {
			mount(p, o.Spec.VolumeClaimTemplates)
		}
	case *batchv1.Job:
		pods = replicas(o, parallel(&o.Spec), &o.Spec.Template)
	case *batchv1.CronJob:
		pods = replicas(o, parallel(&o.Spec.JobTemplate.Spec), &o.Spec.JobTemplate.Spec.Template)
	default:
		return nil, false
	}
	for _, p := range pods {
		complete(p)
	}
	return pods, true
}

// parallel is how many pods of a Job run at once.
func parallel(job *batchv1.JobSpec) int32 {
	n := ptr.Deref(job.Parallelism, 1)
	if job.Completions != nil {
		n = min(n, *job.Completions)
	}
	return n
}

func replicas(o client.Object, n int32, template *corev1.PodTemplateSpec) []*corev1.Pod {
	pods := make([]*corev1.Pod, max(n, 0))
	for i := range pods {
		p := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
		p.Name, p.Namespace = fmt.Sprintf("%s-%d", o.GetName(), i), o.GetNamespace()
		p.OwnerReferences = []metav1.OwnerReference{{Name: o.GetName(), UID: o.GetUID(), Controller: new(true)}}
		pods[i] = p
	}
	return pods
}

// mount adds the volumes of a StatefulSet's pod.
func mount(p *corev1.Pod, claims []corev1.PersistentVolumeClaim) {
	for i := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claims[i].Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claims[i].Name + "-" + p.Name},
		}})
	}
}

// complete fills in what the API server would and the planner or the judge reads: requests from limits, ports.
func complete(p *corev1.Pod) {
	p.Name = cmp.Or(p.Name, p.GenerateName+"0")
	p.Namespace = cmp.Or(p.Namespace, metav1.NamespaceDefault)
	p.UID = types.UID(p.Namespace + "/" + p.Name)
	p.Spec.NodeName, p.Status = "", corev1.PodStatus{Phase: corev1.PodPending}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			completeContainer(&list[i], p.Spec.HostNetwork)
		}
	}
}

func completeContainer(c *corev1.Container, hostNetwork bool) {
	for name, limit := range c.Resources.Limits {
		if _, ok := c.Resources.Requests[name]; ok {
			continue
		}
		if c.Resources.Requests == nil {
			c.Resources.Requests = corev1.ResourceList{}
		}
		c.Resources.Requests[name] = limit
	}
	for i := range c.Ports {
		port := &c.Ports[i]
		port.Protocol = cmp.Or(port.Protocol, corev1.ProtocolTCP)
		if hostNetwork {
			port.HostPort = cmp.Or(port.HostPort, port.ContainerPort)
		}
	}
}
