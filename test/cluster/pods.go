// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// exitSIGTERM is how a container ends that is stopped and does not handle the signal: 128 + 15.
const exitSIGTERM = 143

// podState is what the kubelet knows of a pod it has taken on.
type podState struct {
	uid      types.UID
	machine  *machine
	requests corev1.ResourceList
	refused  bool      // and nothing is left to do
	startAt  time.Time // containers are up then; of a pod taken over, when it started
	reported bool      // Running is written
	stopAt   time.Time // containers are down then; zero while the pod is not deleted
}

// step is the next thing to do for a pod.
type step int

const (
	stepNone   step = iota
	stepWait        // look again after a time
	stepAdmit       // take the pod on or refuse it
	stepRun         // report it running
	stepFinish      // its containers have exited by themselves
	stepStop        // its containers are stopped: report and delete
	stepDelete      // it has nothing running: delete
)

// syncPod does the next thing for a pod, as far as the informer has seen it.
func (k *Kubelet) syncPod(ctx context.Context, key string) error {
	object, exists, err := k.pods.GetStore().GetByKey(key)
	if err != nil {
		return fmt.Errorf("reading pod: %w", err)
	}
	var pod *corev1.Pod
	if exists {
		pod = object.(*corev1.Pod)
	}
	now := time.Now()
	next, m, wait := k.next(key, pod, now)
	if m == nil {
		return nil
	}
	ctx = asNode(ctx, m.NodeName)
	switch next {
	case stepNone:
		return nil
	case stepWait:
		k.queue.AddAfter(task{kind: syncPod, pod: key}, wait)
		return nil
	case stepAdmit:
		return k.admit(ctx, key, pod, m)
	case stepRun:
		return k.reportRunning(ctx, key, pod, m)
	case stepFinish:
		return k.patchPodStatus(ctx, pod, endedStatus(pod, 0, metav1.NewTime(now)))
	case stepStop:
		if err := k.patchPodStatus(ctx, pod, endedStatus(pod, exitSIGTERM, metav1.NewTime(now))); err != nil {
			return err
		}
		return k.deletePod(ctx, pod)
	case stepDelete:
		return k.deletePod(ctx, pod)
	}
	return fmt.Errorf("unknown step %d", next)
}

// next decides. It does no I/O; it returns the pod's machine, and for stepWait the time to wait.
func (k *Kubelet) next(key string, pod *corev1.Pod, now time.Time) (step, *machine, time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	state := k.running[key]
	var m *machine
	if pod != nil {
		m = k.machines[pod.Spec.NodeName]
	}
	if state != nil && (pod == nil || state.uid != pod.UID || state.machine != m || ended(pod)) {
		k.release(key, state)
		state = nil
	}
	switch {
	case m == nil:
		return stepNone, nil, 0
	case pod.DeletionTimestamp != nil:
		next, wait := k.nextOfDeleted(pod, state, now)
		return next, m, wait
	case ended(pod) || state != nil && state.refused:
		return stepNone, m, 0
	case state == nil:
		if !m.ready && !pod.Spec.HostNetwork {
			return stepNone, m, 0 // becomeReady looks again
		}
		return stepAdmit, m, 0
	case !state.reported:
		if wait := state.startAt.Sub(now); wait > 0 {
			return stepWait, m, wait
		}
		return stepRun, m, 0
	}
	next, wait := nextOfRunning(pod, state, now)
	return next, m, wait
}

func (k *Kubelet) nextOfDeleted(pod *corev1.Pod, state *podState, now time.Time) (step, time.Duration) {
	if state == nil || !state.reported || ended(pod) {
		return stepDelete, 0
	}
	if state.stopAt.IsZero() {
		stop := k.opts.PodStop
		if grace := pod.DeletionGracePeriodSeconds; grace != nil {
			stop = min(stop, time.Duration(*grace)*time.Second)
		}
		state.stopAt = now.Add(stop)
	}
	if wait := state.stopAt.Sub(now); wait > 0 {
		return stepWait, wait
	}
	return stepStop, 0
}

// nextOfRunning ends a pod whose time to run is over.
func nextOfRunning(pod *corev1.Pod, state *podState, now time.Time) (step, time.Duration) {
	runFor, limited, err := runFor(pod)
	if err != nil || !limited {
		return stepNone, 0 // a value that turned bad while the pod runs is ignored; admit refuses it before
	}
	if wait := state.startAt.Add(runFor).Sub(now); wait > 0 {
		return stepWait, wait
	}
	return stepFinish, 0
}

// runFor returns how long the pod's containers run, if not for ever.
func runFor(pod *corev1.Pod) (time.Duration, bool, error) {
	value, ok := pod.Annotations[RunForAnnotation]
	if !ok || pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		return 0, false, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return 0, false, fmt.Errorf("annotation %s is %q, want a positive duration", RunForAnnotation, value)
	}
	return d, true, nil
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// admit takes the pod on if a kubelet would, and fails it otherwise.
func (k *Kubelet) admit(ctx context.Context, key string, pod *corev1.Pod, m *machine) error {
	refused, err := k.refusal(ctx, pod, m)
	if err != nil {
		return err
	}
	if refused == nil {
		refused = k.reserve(key, pod, m)
	}
	if refused == nil {
		k.queue.Add(task{kind: syncPod, pod: key})
		return nil
	}
	err = k.patchPodStatus(ctx, pod, corev1.PodStatus{
		Phase: corev1.PodFailed, Reason: refused.reason, Message: "Pod was rejected: " + refused.message,
	})
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running[key] = &podState{uid: pod.UID, machine: m, refused: true}
	return nil
}

// reserve takes the pod's resources, or says what is short.
func (k *Kubelet) reserve(key string, pod *corev1.Pod, m *machine) *rejection {
	state := &podState{uid: pod.UID, machine: m, requests: podRequests(pod), startAt: time.Now().Add(k.opts.PodStart)}
	takenOver := pod.Status.Phase == corev1.PodRunning // from an earlier kubelet of this node
	if takenOver {
		state.reported = true
		if start := pod.Status.StartTime; start != nil {
			state.startAt = start.Time
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if refused := shortage(state.requests, m.used, m.allocatable); refused != nil && !takenOver {
		return refused
	}
	if !takenOver {
		state.startAt = m.images.pull(imagesOf(pod), time.Now(), k.opts.ImagePull).Add(k.opts.PodStart)
	}
	m.used = add(m.used, state.requests)
	k.running[key] = state
	return nil
}

// release gives a pod's resources back. The caller holds k.mu.
func (k *Kubelet) release(key string, state *podState) {
	state.machine.used = sub(state.machine.used, state.requests)
	delete(k.running, key)
}

func (k *Kubelet) reportRunning(ctx context.Context, key string, pod *corev1.Pod, m *machine) error {
	ip := m.InternalIP
	if !pod.Spec.HostNetwork {
		ip = k.ips.next()
	}
	if err := k.patchPodStatus(ctx, pod, runningStatus(pod, m.InternalIP, ip, metav1.Now())); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if state := k.running[key]; state != nil && state.uid == pod.UID {
		state.reported = true
	}
	return nil
}

// patchPodStatus changes what is set in status. A pod that is gone is no error: the informer will tell.
func (k *Kubelet) patchPodStatus(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	patch, err := statusPatch(pod.UID, status)
	if err != nil {
		return err
	}
	_, err = k.node.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing pod status: %w", err)
	}
	return nil
}

// deletePod removes a pod for good.
func (k *Kubelet) deletePod(ctx context.Context, pod *corev1.Pod) error {
	options := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	err := k.node.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting pod: %w", err)
	}
	return nil
}
