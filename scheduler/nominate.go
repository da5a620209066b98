// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerutil "k8s.io/kubernetes/pkg/scheduler/util"
)

// nominationWorkers bounds concurrent status patches where the scheduler has no
// dispatcher for them.
const nominationWorkers = 16

// Nominator writes status.nominatedNodeName of parked pods: the field other
// components read as "capacity for this pod is on its way", and the one that
// makes the scheduler try that node first.
type Nominator struct {
	pods   corelisters.PodLister
	client kubernetes.Interface
	cacher fwk.APICacher
	slots  chan struct{}
}

// NewNominator returns a nominator that uses the scheduler's own client and
// cache. Call it between building and running the scheduler.
func NewNominator(sched *scheduler.Scheduler) (*Nominator, error) {
	for _, profile := range sched.Profiles {
		return &Nominator{
			pods:   profile.SharedInformerFactory().Core().V1().Pods().Lister(),
			client: profile.ClientSet(),
			cacher: profile.APICacher(),
			slots:  make(chan struct{}, nominationWorkers),
		}, nil
	}
	return nil, errors.New("building nominator: scheduler has no profile")
}

// Nominate names the pod's node and returns before the patch is sent: through the
// scheduler's asynchronous API calls where they are on, which merge it with the
// pod's other status patches, else from one of 16 workers. A pod that is bound,
// deleted or recreated is left alone without error. Another nomination is
// replaced, since whoever reads one that will not come true believes the pod to be
// taken care of. That is for plans that failed: each replacement makes the
// scheduler re-examine every pending pod.
func (n *Nominator) Nominate(ctx context.Context, key types.NamespacedName, uid types.UID, node string) error {
	pod, err := n.pods.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking up pod %q: %w", key, err)
	}
	if pod.UID != uid || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return nil
	}
	if pod.Status.NominatedNodeName == node {
		return nil
	}
	if n.cacher != nil {
		// The dispatcher logs what comes of it.
		if _, err := n.cacher.PatchPodStatus(pod, nil, nomination(node)); err != nil {
			return fmt.Errorf("nominating pod %q to node %q: %w", key, node, err)
		}
		return nil
	}
	go n.patch(ctx, pod, node)
	return nil
}

// patch sends the nomination with the plain client, when there is a free slot.
func (n *Nominator) patch(ctx context.Context, pod *corev1.Pod, node string) {
	select {
	case n.slots <- struct{}{}:
		defer func() { <-n.slots }()
	case <-ctx.Done():
		return
	}
	status := pod.Status.DeepCopy()
	status.NominatedNodeName = node
	if err := schedulerutil.PatchPodStatus(ctx, n.client, pod.Name, pod.Namespace, &pod.Status, status); err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "Nominating pod failed", "pod", klog.KObj(pod), "node", node)
	}
}
