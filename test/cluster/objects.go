// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// newNode is the Node a kubelet registers, NotReady. Labels are applied in a kubelet's order: its defaults, the
// user data's, the cloud's.
func newNode(m *machine, version string, now metav1.Time) *corev1.Node {
	arch := architecture(m.Arch)
	labels := map[string]string{
		corev1.LabelHostname: m.NodeName, corev1.LabelOSStable: cmp.Or(m.OS, "linux"), corev1.LabelArchStable: arch,
	}
	maps.Copy(labels, m.Labels)
	for key, value := range map[string]string{
		corev1.LabelInstanceTypeStable: m.InstanceType, corev1.LabelTopologyZone: m.Zone, corev1.LabelTopologyRegion: m.Region,
	} {
		if value != "" {
			labels[key] = value
		}
	}
	addresses := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: m.NodeName}, {Type: corev1.NodeInternalDNS, Address: m.NodeName}}
	if m.InternalIP != "" {
		addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: m.InternalIP})
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.NodeName, Labels: labels},
		Spec:       corev1.NodeSpec{ProviderID: m.ProviderID, Taints: m.Taints},
		Status: corev1.NodeStatus{
			Capacity:    withoutLate(m.Capacity, m.faults),
			Allocatable: withoutLate(m.Allocatable, m.faults),
			Conditions:  nodeConditions(false, now),
			Addresses:   addresses,
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: m.InstanceID, SystemUUID: m.InstanceID, BootID: m.InstanceID,
				OperatingSystem: cmp.Or(m.OS, "linux"), Architecture: arch, KernelVersion: "fake",
				OSImage: cmp.Or(m.ImageID, "fake"), ContainerRuntimeVersion: "fake://1", KubeletVersion: version,
			},
		},
	}
}

// architecture translates EC2's name of an architecture to Go's.
func architecture(name string) string {
	switch name {
	case "", "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	}
	return name
}

// withoutLate leaves out what a machine shows only later.
func withoutLate(list corev1.ResourceList, f Faults) corev1.ResourceList {
	shown := corev1.ResourceList{}
	for name, quantity := range list {
		if _, late := f.LateResources[name]; !late {
			shown[name] = quantity
		}
	}
	return shown
}

func nodeConditions(ready bool, now metav1.Time) []corev1.NodeCondition {
	conditions := []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID"},
		{
			Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady",
			Message: "container runtime network not ready: cni plugin not initialized",
		},
	}
	if ready {
		last := &conditions[len(conditions)-1]
		last.Status, last.Reason, last.Message = corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"
	}
	for i := range conditions {
		conditions[i].LastHeartbeatTime, conditions[i].LastTransitionTime = now, now
	}
	return conditions
}

// runningStatus is the status of a pod whose containers are all up.
func runningStatus(pod *corev1.Pod, hostIP, podIP string, now metav1.Time) corev1.PodStatus {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
	completed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}}
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &now,
		Conditions: podConditions(corev1.ConditionTrue, "", now),
		HostIP:     hostIP, PodIP: podIP,
	}
	if hostIP != "" {
		status.HostIPs = []corev1.HostIP{{IP: hostIP}}
	}
	if podIP != "" {
		status.PodIPs = []corev1.PodIP{{IP: podIP}}
	}
	for _, c := range pod.Spec.InitContainers {
		state, sidecar := completed, c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		if sidecar {
			state = running
		}
		status.InitContainerStatuses = append(status.InitContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, State: state, Ready: true, Started: new(sidecar),
		})
	}
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, State: running, Ready: true, Started: new(true),
		})
	}
	return status
}

// endedStatus is the status of a pod whose containers have all exited with this code.
func endedStatus(pod *corev1.Pod, exitCode int32, now metav1.Time) corev1.PodStatus {
	phase, reason, podReason := corev1.PodSucceeded, "Completed", "PodCompleted"
	if exitCode != 0 {
		phase, reason, podReason = corev1.PodFailed, "Error", "PodFailed"
	}
	status := corev1.PodStatus{Phase: phase, Conditions: podConditions(corev1.ConditionFalse, podReason, now)}
	for _, c := range pod.Spec.Containers {
		ended := &corev1.ContainerStateTerminated{ExitCode: exitCode, Reason: reason, FinishedAt: now}
		if pod.Status.StartTime != nil {
			ended.StartedAt = *pod.Status.StartTime
		}
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Started: new(false), State: corev1.ContainerState{Terminated: ended},
		})
	}
	return status
}

func podConditions(ready corev1.ConditionStatus, reason string, now metav1.Time) []corev1.PodCondition {
	return []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: ready, LastTransitionTime: now},
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: now},
		{Type: corev1.ContainersReady, Status: ready, Reason: reason, LastTransitionTime: now},
		{Type: corev1.PodReady, Status: ready, Reason: reason, LastTransitionTime: now},
	}
}

// statusPatch is a strategic merge patch of the set fields of an object's status, good for the object with this
// uid only.
func statusPatch(uid types.UID, status any) ([]byte, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": status})
	if err != nil {
		return nil, fmt.Errorf("encoding status: %w", err)
	}
	return patch, nil
}

// ipPool gives out pod addresses, each once, from 10.128.0.0/9.
type ipPool struct{ last atomic.Uint32 }

func (p *ipPool) next() string {
	n := p.last.Add(1)
	return netip.AddrFrom4([4]byte{10, 128 | byte(n>>16), byte(n >> 8), byte(n)}).String()
}
