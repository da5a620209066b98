// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// ownerIndex is the pod informer's index by the UID of the controlling owner.
const ownerIndex = "slipway.sh/controller"

// Indexers are what [Owners] needs on the pod informer; add them before it starts.
func Indexers() cache.Indexers {
	return cache.Indexers{ownerIndex: func(obj any) ([]string, error) {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return nil, fmt.Errorf("indexing pods by owner: got %T", obj)
		}
		if ref := metav1.GetControllerOf(pod); ref != nil {
			return []string{string(ref.UID)}, nil
		}
		return nil, nil
	}}
}

// Owners knows how many pods the controllers of pods have still to create. It reads caches only.
type Owners struct {
	// Pods has the index of [Indexers].
	Pods         cache.Indexer
	ReplicaSets  appslisters.ReplicaSetLister
	StatefulSets appslisters.StatefulSetLister
	Jobs         batchlisters.JobLister
	Quotas       corelisters.ResourceQuotaLister
	// Scales answers for owners of any other kind; nil for none.
	Scales interface {
		// Replicas is how many pods like this one the owner should have; false while that is not known. It must not block.
		Replicas(ctx context.Context, pod *corev1.Pod, owner metav1.OwnerReference) (int, bool)
	}
}

// Of are the pods the controller has, ended ones too.
func (o *Owners) Of(controller types.UID) []*corev1.Pod {
	objects, err := o.Pods.ByIndex(ownerIndex, string(controller))
	if err != nil {
		panic("demand: the pod informer lacks demand.Indexers: " + err.Error())
	}
	out := make([]*corev1.Pod, 0, len(objects))
	for _, obj := range objects {
		if p, ok := obj.(*corev1.Pod); ok {
			out = append(out, p)
		}
	}
	return out
}

// Coming says how many pods like this one its owner is about to create, and which pods it has already that have no node.
// Zero when the pod has no controller, the controller is unknown, finished, suspended, fails to create pods (condition
// ReplicaFailure) or creates them one by one, or when somebody else decides when its pods may start (scheduling gates), and
// as far as the namespace's quota allows.
//
// The numbers are those the controllers themselves count by: a pod that is being deleted or has ended is not a replica.
func (o *Owners) Coming(ctx context.Context, pod *corev1.Pod) (n int, pending []types.UID) {
	ref := metav1.GetControllerOf(pod)
	if ref == nil {
		return 0, nil
	}
	have, gated := 0, false
	objs, err := o.Pods.ByIndex(ownerIndex, string(ref.UID))
	if err != nil {
		return 0, nil // without the index there is no look-ahead
	}
	for _, obj := range objs {
		p, ok := obj.(*corev1.Pod)
		if !ok || !active(p) {
			continue
		}
		have++
		switch {
		case len(p.Spec.SchedulingGates) > 0:
			gated = true
		case p.Spec.NodeName == "":
			pending = append(pending, p.UID)
		}
	}
	want, ok := o.want(ctx, pod, *ref)
	if !ok || gated || want <= have {
		return 0, pending
	}
	return min(want-have, o.headroom(pod)), pending
}

// active is the controllers' own filter (controller.FilterActivePods).
func active(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// want is how many pods the owner is creating without waiting for any of them.
func (o *Owners) want(ctx context.Context, pod *corev1.Pod, ref metav1.OwnerReference) (int, bool) {
	namespace := pod.Namespace
	switch ref.APIVersion + "/" + ref.Kind {
	case "apps/v1/ReplicaSet":
		// A Deployment's surge and steps are in the replicas it gives to its ReplicaSets.
		rs, err := o.ReplicaSets.ReplicaSets(namespace).Get(ref.Name)
		if err != nil || rs.UID != ref.UID || rs.DeletionTimestamp != nil || failing(rs) {
			return 0, false
		}
		return replicas(rs.Spec.Replicas), true
	case "apps/v1/StatefulSet":
		sts, err := o.StatefulSets.StatefulSets(namespace).Get(ref.Name)
		if err != nil || sts.UID != ref.UID || sts.DeletionTimestamp != nil || sts.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
			return 0, false // OrderedReady: the next pod comes when this one is ready
		}
		return replicas(sts.Spec.Replicas), true
	case "batch/v1/Job":
		job, err := o.Jobs.Jobs(namespace).Get(ref.Name)
		if err != nil || job.UID != ref.UID || job.DeletionTimestamp != nil || ended(job) {
			return 0, false
		}
		return parallel(job), true
	default:
		if o.Scales == nil {
			return 0, false
		}
		return o.Scales.Replicas(ctx, pod, ref)
	}
}

func replicas(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

// failing reports the condition a ReplicaSet has while its pods are refused (quota, admission, a missing service account).
func failing(rs *appsv1.ReplicaSet) bool {
	for _, c := range rs.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// ended reports a Job that creates no pods: suspended, complete, failed or about to be either.
func ended(job *batchv1.Job) bool {
	if job.Spec.Suspend != nil && *job.Spec.Suspend {
		return true
	}
	for _, c := range job.Status.Conditions {
		switch c.Type {
		case batchv1.JobComplete, batchv1.JobFailed, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet:
			if c.Status == corev1.ConditionTrue {
				return true
			}
		}
	}
	return false
}

// parallel is how many pods of a Job may exist at a time: its parallelism, and not more than are missing from its
// completions. A Job without completions is a work queue and gets no further pods once one has succeeded. An index that has
// failed for good (spec.backoffLimitPerIndex) gets none, and too many of those fail the Job.
func parallel(job *batchv1.Job) int {
	n := replicas(job.Spec.Parallelism)
	switch {
	case job.Spec.Completions != nil:
		completions, failed := int(*job.Spec.Completions), 0
		if job.Status.FailedIndexes != nil {
			failed = indexes(*job.Status.FailedIndexes, completions)
		}
		if most := job.Spec.MaxFailedIndexes; most != nil && failed > int(*most) {
			return 0
		}
		n = min(n, completions-int(job.Status.Succeeded)-failed)
	case job.Status.Succeeded > 0:
		return 0
	}
	if p := job.Spec.PodReplacementPolicy; p != nil && *p == batchv1.Failed && job.Status.Terminating != nil {
		n -= int(*job.Status.Terminating) // pods that are being ended are replaced once they have
	}
	return n
}

// indexes counts the indexes below completions in a Job's list of them, such as "1,3-5,7". As the Job controller does, it
// leaves out what cannot be read.
func indexes(list string, completions int) int {
	n := 0
	for item := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(item, "-")
		first, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		last := first
		if isRange {
			if last, err = strconv.Atoi(to); err != nil {
				continue
			}
		}
		n += max(min(last, completions-1)-first+1, 0)
	}
	return n
}
