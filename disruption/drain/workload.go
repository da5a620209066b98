// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// SurgeAnnotation on a pod (set it in the template) or its Deployment or ReplicaSet with the value "false" has pods moved
	// without a successor first.
	SurgeAnnotation = "slipway.sh/surge-before-evict"
	// SurgeLabel on a Deployment or ReplicaSet is a surge under way: <replicas before>.<replicas during it>.<phase>.<UID of the
	// pod that moves>. It is a label because those can be listed by, and because a Deployment's annotations are copied to its
	// ReplicaSets and, when somebody rolls back, from there again.
	SurgeLabel = "slipway.sh/surge"
)

// Phases of a surge.
const (
	phaseUp   = "up"   // one replica more is asked for, or about to be
	phaseBack = "back" // it is taken back, or about to be
)

// record is what [SurgeLabel] says.
type record struct {
	from, to int32
	phase    string
	pod      types.UID
}

func (r record) String() string { return fmt.Sprintf("%d.%d.%s.%s", r.from, r.to, r.phase, r.pod) }

// parseRecord reads a label's value; nil if it is empty or not ours.
func parseRecord(s string) *record {
	parts := strings.SplitN(s, ".", 4)
	if len(parts) != 4 || (parts[2] != phaseUp && parts[2] != phaseBack) || parts[3] == "" {
		return nil
	}
	from, err1 := strconv.ParseInt(parts[0], 10, 32)
	to, err2 := strconv.ParseInt(parts[1], 10, 32)
	if err1 != nil || err2 != nil || from < 0 || to <= from {
		return nil
	}
	return &record{from: int32(from), to: int32(to), phase: parts[2], pod: types.UID(parts[3])}
}

// workload is what makes a pod, as far as it can be surged: a Deployment, or a ReplicaSet of its own.
type workload struct {
	client.Object
	kind     string
	replicas int32
	// set is the ReplicaSet the pod is of.
	set types.UID
	// unfit says why it never has one pod more than its replicas, rolling why it has not now, failed why it gets no more pods.
	unfit, rolling, failed string
}

func (w *workload) String() string { return fmt.Sprintf("%s %q", w.kind, w.GetName()) }

// workloadOf returns what makes the pod, nil if that is nothing that can be surged. StatefulSets are not: a pod more is
// another member with a name and volumes of its own, no successor of the one that moves, and fewer replicas take away the
// last member, not that one. Jobs, bare pods and other owners have no replicas to spare.
func workloadOf(ctx context.Context, live client.Reader, p *corev1.Pod) (*workload, error) {
	owner := metav1.GetControllerOf(p)
	if owner == nil || owner.Kind != "ReplicaSet" || !strings.HasPrefix(owner.APIVersion, "apps/") {
		return nil, nil
	}
	set := &appsv1.ReplicaSet{}
	if ok, err := read(ctx, live, p.Namespace, owner, set); !ok {
		return nil, err
	}
	over := metav1.GetControllerOf(set)
	switch {
	case over == nil:
		return replicaSet(set), nil
	case over.Kind != "Deployment" || !strings.HasPrefix(over.APIVersion, "apps/"):
		return nil, nil // somebody else's, who would take back what we do
	}
	deployment := &appsv1.Deployment{}
	if ok, err := read(ctx, live, p.Namespace, over, deployment); !ok {
		return nil, err
	}
	return deploymentOf(deployment, set), nil
}

// read reads an owner; false if it is gone.
func read(ctx context.Context, live client.Reader, namespace string, owner *metav1.OwnerReference, into client.Object) (bool, error) {
	err := live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: owner.Name}, into)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading %s %q: %w", owner.Kind, namespace+"/"+owner.Name, err)
	}
	return into.GetUID() == owner.UID && into.GetDeletionTimestamp() == nil, nil
}

func replicaSet(set *appsv1.ReplicaSet) *workload {
	w := &workload{Object: set, kind: "ReplicaSet", replicas: ptr.Deref(set.Spec.Replicas, 1), set: set.UID}
	for _, c := range set.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
			w.failed = c.Message
		}
	}
	return w
}

func deploymentOf(d *appsv1.Deployment, set *appsv1.ReplicaSet) *workload {
	w := &workload{Object: d, kind: "Deployment", replicas: ptr.Deref(d.Spec.Replicas, 1), set: set.UID}
	switch {
	case d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		w.unfit = "its strategy is Recreate, which says that two of its pods must not run at once"
	case d.Spec.Strategy.RollingUpdate != nil && zero(d.Spec.Strategy.RollingUpdate.MaxSurge):
		w.unfit = "its strategy's maxSurge is 0, which says that it must not have more pods than replicas"
	}
	if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < d.Status.Replicas {
		w.rolling = "it is being rolled out"
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			w.failed = c.Message
		}
	}
	return w
}

func zero(v *intstr.IntOrString) bool {
	return v != nil && (v.Type == intstr.Int && v.IntVal == 0 || v.Type == intstr.String && strings.TrimSuffix(v.StrVal, "%") == "0")
}

// scaler returns who else writes the workload's replicas, empty if nobody is known to.
func scaler(ctx context.Context, live client.Reader, w *workload) (string, error) {
	var list autoscalingv2.HorizontalPodAutoscalerList
	if err := live.List(ctx, &list, client.InNamespace(w.GetNamespace())); err != nil {
		return "", fmt.Errorf("listing the HorizontalPodAutoscalers of namespace %q: %w", w.GetNamespace(), err)
	}
	for _, h := range list.Items {
		if t := h.Spec.ScaleTargetRef; t.Kind != w.kind || t.Name != w.GetName() {
			continue
		}
		for _, o := range h.OwnerReferences {
			if strings.HasPrefix(o.APIVersion, "keda.sh/") {
				return fmt.Sprintf("KEDA's %s %q", o.Kind, o.Name), nil
			}
		}
		return fmt.Sprintf("HorizontalPodAutoscaler %q", h.Name), nil
	}
	return "", nil
}

// soleVolume returns a volume of the pod that only one node can mount, so that a second pod could not start beside it.
func soleVolume(ctx context.Context, live client.Reader, p *corev1.Pod) (string, error) {
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		c := &corev1.PersistentVolumeClaim{}
		err := live.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: v.PersistentVolumeClaim.ClaimName}, c)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("reading PersistentVolumeClaim %q: %w", p.Namespace+"/"+v.PersistentVolumeClaim.ClaimName, err)
		}
		shared := false
		for _, mode := range c.Spec.AccessModes {
			shared = shared || mode == corev1.ReadWriteMany || mode == corev1.ReadOnlyMany
		}
		if !shared {
			return c.Name, nil
		}
	}
	return "", nil
}
