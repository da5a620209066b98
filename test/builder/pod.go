// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SchedulerName is the scheduler built pods ask for unless Scheduler says otherwise.
const SchedulerName = "slipway"

// PodBuilder builds a Pod.
type PodBuilder struct {
	Meta[*PodBuilder]
	pod *corev1.Pod
}

// Pod starts a pending pod in namespace default with one container, app, that requests nothing.
func Pod(name string) *PodBuilder {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: corev1.PodSpec{
			SchedulerName: SchedulerName,
			Containers:    []corev1.Container{{Name: "app", Image: "registry.example/app:1"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	b := &PodBuilder{pod: p}
	b.Meta = Meta[*PodBuilder]{self: b, object: &p.ObjectMeta}
	return b
}

// Obj returns the pod.
func (b *PodBuilder) Obj() *corev1.Pod { return b.pod.DeepCopy() }

// Objs returns n equal pods named name-0 … name-(n-1).
func (b *PodBuilder) Objs(n int) []*corev1.Pod {
	out := make([]*corev1.Pod, n)
	for i := range out {
		out[i] = b.Obj()
		out[i].Name = fmt.Sprintf("%s-%d", b.pod.Name, i)
	}
	return out
}

// CPU sets the CPU request of container app.
func (b *PodBuilder) CPU(quantity string) *PodBuilder { return b.Request(corev1.ResourceCPU, quantity) }

// Memory sets the memory request of container app.
func (b *PodBuilder) Memory(quantity string) *PodBuilder {
	return b.Request(corev1.ResourceMemory, quantity)
}

// Request sets one resource request of container app.
func (b *PodBuilder) Request(name corev1.ResourceName, quantity string) *PodBuilder {
	putQuantity(&b.pod.Spec.Containers[0].Resources.Requests, name, quantity)
	return b
}

// Limit sets one resource limit of container app.
func (b *PodBuilder) Limit(name corev1.ResourceName, quantity string) *PodBuilder {
	putQuantity(&b.pod.Spec.Containers[0].Resources.Limits, name, quantity)
	return b
}

// PodRequest sets one request of the pod as a whole (pod-level resources).
func (b *PodBuilder) PodRequest(name corev1.ResourceName, quantity string) *PodBuilder {
	if b.pod.Spec.Resources == nil {
		b.pod.Spec.Resources = &corev1.ResourceRequirements{}
	}
	putQuantity(&b.pod.Spec.Resources.Requests, name, quantity)
	return b
}

// Overhead sets one resource of the pod's runtime overhead.
func (b *PodBuilder) Overhead(name corev1.ResourceName, quantity string) *PodBuilder {
	putQuantity(&b.pod.Spec.Overhead, name, quantity)
	return b
}

// Container adds a further container with CPU and memory requests.
func (b *PodBuilder) Container(name, cpu, memory string) *PodBuilder {
	b.pod.Spec.Containers = append(b.pod.Spec.Containers, container(name, cpu, memory))
	return b
}

// InitContainer adds an init container with CPU and memory requests.
func (b *PodBuilder) InitContainer(name, cpu, memory string) *PodBuilder {
	b.pod.Spec.InitContainers = append(b.pod.Spec.InitContainers, container(name, cpu, memory))
	return b
}

// Sidecar adds an init container that keeps running (restartPolicy Always), with CPU and memory requests.
func (b *PodBuilder) Sidecar(name, cpu, memory string) *PodBuilder {
	always := corev1.ContainerRestartPolicyAlways
	c := container(name, cpu, memory)
	c.RestartPolicy = &always
	b.pod.Spec.InitContainers = append(b.pod.Spec.InitContainers, c)
	return b
}

func container(name, cpu, memory string) corev1.Container {
	c := corev1.Container{Name: name, Image: "registry.example/" + name + ":1"}
	putQuantity(&c.Resources.Requests, corev1.ResourceCPU, cpu)
	putQuantity(&c.Resources.Requests, corev1.ResourceMemory, memory)
	return c
}

// HostPort makes container app bind a TCP port of its node.
func (b *PodBuilder) HostPort(port int32) *PodBuilder {
	c := &b.pod.Spec.Containers[0]
	c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: port, HostPort: port, Protocol: corev1.ProtocolTCP})
	return b
}

// Volume mounts a PersistentVolumeClaim of the pod's namespace.
func (b *PodBuilder) Volume(claim string) *PodBuilder {
	b.pod.Spec.Volumes = append(b.pod.Spec.Volumes, corev1.Volume{
		Name: claim,
		VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		},
	})
	return b
}

// Priority sets the priority as admission would from a priority class.
func (b *PodBuilder) Priority(n int32) *PodBuilder {
	b.pod.Spec.Priority = &n
	return b
}

// Scheduler sets schedulerName.
func (b *PodBuilder) Scheduler(name string) *PodBuilder {
	b.pod.Spec.SchedulerName = name
	return b
}

// Gate adds a scheduling gate.
func (b *PodBuilder) Gate(name string) *PodBuilder {
	b.pod.Spec.SchedulingGates = append(b.pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: name})
	return b
}

// Tolerate adds tolerations.
func (b *PodBuilder) Tolerate(t ...corev1.Toleration) *PodBuilder {
	b.pod.Spec.Tolerations = append(b.pod.Spec.Tolerations, t...)
	return b
}

// On binds the pod to a node, running and ready.
func (b *PodBuilder) On(node string) *PodBuilder {
	b.pod.Spec.NodeName = node
	b.pod.Status.Phase = corev1.PodRunning
	b.podCondition(corev1.PodScheduled, corev1.ConditionTrue, "", "")
	b.podCondition(corev1.PodReady, corev1.ConditionTrue, "", "")
	return b
}

// Nominated sets status.nominatedNodeName.
func (b *PodBuilder) Nominated(node string) *PodBuilder {
	b.pod.Status.NominatedNodeName = node
	return b
}

// Unschedulable adds the condition the scheduler writes when no node fits.
func (b *PodBuilder) Unschedulable(message string) *PodBuilder {
	b.podCondition(corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonUnschedulable, message)
	return b
}

// Phase sets status.phase.
func (b *PodBuilder) Phase(p corev1.PodPhase) *PodBuilder {
	b.pod.Status.Phase = p
	return b
}

func (b *PodBuilder) podCondition(kind corev1.PodConditionType, s corev1.ConditionStatus, reason, message string) {
	b.pod.Status.Conditions = append(b.pod.Status.Conditions, corev1.PodCondition{
		Type: kind, Status: s, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(Epoch()),
	})
}
