// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// run is one verification. Pods that are equal to the scheduler share one
// PreFilter, which costs a look at every node; it is then kept up to date with
// each pod placed, which does not.
type run struct {
	judge   *Judge
	placed  []placement
	classes map[string]*class
	refused map[refusal]*fwk.Status
	// reserved are the pods that took volumes, to be given back.
	reserved []reservation
}

type reservation struct {
	state *framework.CycleState
	pod   *corev1.Pod
	node  string
}

// trial is a pod to be placed on a node, and why it was not.
type trial struct {
	pod    *corev1.Pod
	name   string
	node   *framework.NodeInfo // nil if there is no such node
	status *fwk.Status
	// key is the pod's class, "" for one of its own.
	key string
}

// refusal is where a class was refused, in the state after so many placements.
type refusal struct {
	key    string
	node   string
	placed int
}

// placement is a verified pod on its node.
type placement struct {
	pod  *framework.PodInfo
	node *framework.NodeInfo
}

// class is the PreFilter result of equal pods.
type class struct {
	info   framework.PodInfo // of any of them, with its terms parsed and its resources summed up
	state  *framework.CycleState
	result *fwk.PreFilterResult
	status *fwk.Status
	seen   int // placements the state knows of
	// uncounted says that the pods spread by a selector that is empty, which counts no pod in PreFilter and every pod in
	// AddPod: only the former is what the scheduler sees.
	uncounted bool
}

func newRun(j *Judge) *run {
	return &run{judge: j, classes: map[string]*class{}, refused: map[refusal]*fwk.Status{}}
}

// verify places what can be placed and returns the rest, in order. It goes over
// the pods that others may yet make room for until none is placed any more.
func (r *run) verify(ctx context.Context, trials []trial) ([]trial, error) {
	for i := range trials {
		if r.judge.of(trials[i].pod).incremental {
			trials[i].key, _ = classKey(trials[i].pod)
		}
	}
	for {
		before := len(r.placed)
		open := 0
		for i := range trials {
			t := &trials[i]
			if t.status != nil && !r.judge.of(t.pod).mayChange(t.status) {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if t.status = r.try(ctx, t); t.status != nil && r.judge.of(t.pod).mayChange(t.status) {
				open++
			}
		}
		trials = slices.DeleteFunc(trials, func(t trial) bool { return t.status == nil })
		if open == 0 || len(r.placed) == before {
			return trials, nil
		}
	}
}

// try places one pod; equal pods refused by the same node are asked only once
// between two placements. It returns nil for a pod that was placed.
func (r *run) try(ctx context.Context, t *trial) *fwk.Status {
	if t.node == nil {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node is not in the cluster any more")
	}
	at := refusal{t.key, t.name, len(r.placed)}
	if status, known := r.refused[at]; known && t.key != "" {
		return status
	}
	status := r.place(ctx, t)
	if status.IsSuccess() {
		return nil
	}
	r.refused[at] = status
	return status
}

// place verifies the pod on the node and, if nothing objects, puts it there.
func (r *run) place(ctx context.Context, t *trial) *fwk.Status {
	pod, node := t.pod, t.node
	c := r.class(ctx, t)
	if !c.status.IsSuccess() {
		return c.status
	}
	if !c.result.AllNodes() && !c.result.NodeNames.Has(t.name) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node is not among those the pod is restricted to")
	}
	if status := r.judge.of(pod).framework.RunFilterPlugins(ctx, c.state, pod, node); !status.IsSuccess() {
		return status
	}
	if status := r.reserve(ctx, c, t); !status.IsSuccess() {
		return status
	}
	info := c.info
	info.Pod = pod
	r.judge.overlay.add(node, &info)
	r.placed = append(r.placed, placement{pod: &info, node: node})
	return nil
}

// reserve takes the volumes of a pod that has any of its own. Pods that share a
// class have none.
func (r *run) reserve(ctx context.Context, c *class, t *trial) *fwk.Status {
	if t.key != "" || !slices.ContainsFunc(t.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }) {
		return nil
	}
	status := r.judge.of(t.pod).framework.RunReservePluginsReserve(ctx, c.state, t.pod, t.name)
	if !status.IsSuccess() {
		r.judge.of(t.pod).framework.RunReservePluginsUnreserve(ctx, c.state, t.pod, t.name)
		return status
	}
	r.reserved = append(r.reserved, reservation{state: c.state, pod: t.pod, node: t.name})
	return nil
}

// undo gives the volumes back, the last taken first.
func (r *run) undo(ctx context.Context) {
	for _, v := range slices.Backward(r.reserved) {
		r.judge.of(v.pod).framework.RunReservePluginsUnreserve(ctx, v.state, v.pod, v.node)
	}
}

// class returns an up-to-date PreFilter result for the pod.
func (r *run) class(ctx context.Context, t *trial) *class {
	if t.key == "" {
		return r.preFilter(ctx, t.pod)
	}
	c, ok := r.classes[t.key]
	if !ok || !r.catchUp(ctx, c) {
		c = r.preFilter(ctx, t.pod)
		r.classes[t.key] = c
	}
	return c
}

func (r *run) preFilter(ctx context.Context, pod *corev1.Pod) *class {
	c := &class{state: framework.NewCycleState(), seen: len(r.placed)}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		c.status = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
		return c
	}
	info.CalculateResource() // is remembered, and copied with the rest
	c.info = *info
	c.uncounted = slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(s corev1.TopologySpreadConstraint) bool {
		return s.LabelSelector != nil && len(s.LabelSelector.MatchLabels)+len(s.LabelSelector.MatchExpressions)+len(s.MatchLabelKeys) == 0
	})
	c.result, c.status, _ = r.judge.of(pod).framework.RunPreFilterPlugins(ctx, c.state, pod)
	return c
}

// catchUp tells the class's state of the pods placed since it was last used. It
// returns false if the state cannot be carried on and PreFilter must run again.
func (r *run) catchUp(ctx context.Context, c *class) bool {
	if !c.status.IsSuccess() || c.seen == len(r.placed) {
		return c.seen == len(r.placed)
	}
	if c.uncounted {
		return false
	}
	skipped := c.state.GetSkipFilterPlugins()
	for _, p := range r.placed[c.seen:] {
		// InterPodAffinity skips a pod without terms as long as no pod anywhere has
		// an anti-affinity; this one has, and a skipped plugin is not told of it.
		if skipped.Has(names.InterPodAffinity) && len(p.pod.RequiredAntiAffinityTerms) > 0 {
			return false
		}
		if status := r.judge.of(c.info.Pod).framework.RunPreFilterExtensionAddPod(ctx, c.state, c.info.Pod, p.pod, p.node); !status.IsSuccess() {
			return false
		}
	}
	c.seen = len(r.placed)
	return skipped.Has(names.PodTopologySpread) || repairSpread(c.state)
}

// classKey is equal for pods that all in-tree plugins treat equally at any
// instant. It is false for pods whose volumes or resource claims have a state of
// their own.
//
// What tells the pods of one owner apart without a meaning to the scheduler is
// left out: above all the random name of the service account token's volume.
func classKey(pod *corev1.Pod) (string, bool) {
	if len(pod.Spec.ResourceClaims) > 0 {
		return "", false
	}
	for i := range pod.Spec.Volumes {
		if !stateless(&pod.Spec.Volumes[i]) {
			return "", false
		}
	}
	reduced := corev1.Pod{Spec: pod.Spec}
	reduced.Namespace, reduced.Labels = pod.Namespace, pod.Labels
	reduced.Spec.Volumes = nil
	reduced.Spec.Hostname = ""
	reduced.Spec.Containers = reduceContainers(pod.Spec.Containers)
	reduced.Spec.InitContainers = reduceContainers(pod.Spec.InitContainers)
	// A running pod that has been resized in place counts with what it really has.
	reduced.Status.Resources, reduced.Status.AllocatedResources = pod.Status.Resources, pod.Status.AllocatedResources
	reduced.Status.ContainerStatuses = reduceStatuses(pod.Status.ContainerStatuses)
	reduced.Status.InitContainerStatuses = reduceStatuses(pod.Status.InitContainerStatuses)
	// The protobuf form is quick to write and orders maps by key.
	key, err := reduced.Marshal()
	if err != nil {
		return "", false
	}
	return string(key), true
}

// stateless reports whether a volume has nothing to do with where a pod can run.
func stateless(v *corev1.Volume) bool {
	return v.Projected != nil || v.ConfigMap != nil || v.Secret != nil || v.EmptyDir != nil || v.DownwardAPI != nil || v.HostPath != nil
}

func reduceContainers(containers []corev1.Container) []corev1.Container {
	reduced := make([]corev1.Container, len(containers))
	for i, c := range containers {
		c.Command, c.Args, c.Env, c.EnvFrom = nil, nil, nil, nil
		mounts := make([]corev1.VolumeMount, len(c.VolumeMounts))
		for k, m := range c.VolumeMounts {
			m.Name = ""
			mounts[k] = m
		}
		c.VolumeMounts = mounts
		reduced[i] = c
	}
	return reduced
}

func reduceStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var reduced []corev1.ContainerStatus
	for _, s := range statuses {
		reduced = append(reduced, corev1.ContainerStatus{Name: s.Name, Resources: s.Resources, AllocatedResources: s.AllocatedResources})
	}
	return reduced
}
