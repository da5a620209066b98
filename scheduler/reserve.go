// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcehelper "k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	schedulerutil "k8s.io/kubernetes/pkg/scheduler/util"
)

// Reservations tell what room on new nodes belongs to the pods they were bought
// for. Nominations say so too, for pods that exist and are nominated; this is for
// all the others: pods whose nomination is not written yet, and those that their
// owners have still to create.
type Reservations interface {
	// Kept are the nodes that have joined and on which room is kept, empty for
	// none. It is asked in every scheduling cycle and once a node in some, and
	// must be a look-up. The set is not changed after it was returned.
	Kept() sets.Set[string]
	// Against lists the pods for which room on the node is kept against this one:
	// those of no lower priority, or none if the pod has its own place there.
	Against(pod *corev1.Pod, node string) []*corev1.Pod
}

// keptReason is why a node with room left is not for a pod.
const keptReason = "node(s) had their room kept for the pods they were bought for"

var (
	_ fwk.PreFilterPlugin = &Plugin{}
	_ fwk.FilterPlugin    = &Plugin{}
	_ fwk.SignPlugin      = &Plugin{}
)

// PreFilter skips the filter unless some node is arriving. DaemonSet pods are
// never refused: their room is planned with the node.
func (p *Plugin) PreFilter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	r := p.core.Reservations
	switch {
	case r == nil:
		return nil, fwk.NewStatus(fwk.Skip)
	case len(r.Kept()) == 0:
		p.sizes.drop()
		return nil, fwk.NewStatus(fwk.Skip)
	case ofDaemonSet(pod):
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

// PreFilterExtensions returns none: Filter counts what it finds on the node.
func (*Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter refuses a node to a pod that would take room which pods of no lower
// priority were promised there. A node with room for all of them is open to any.
func (p *Plugin) Filter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, nodeInfo fwk.NodeInfo) *fwk.Status {
	node := nodeInfo.Node()
	if node == nil || !p.core.Reservations.Kept().Has(node.Name) {
		return nil
	}
	kept := notOn(p.core.Reservations.Against(pod, node.Name), nodeInfo)
	if len(kept) == 0 || !portsClash(pod, kept) && p.roomFor(pod, kept, nodeInfo) {
		return nil
	}
	return fwk.NewStatus(fwk.Unschedulable, keptReason)
}

// SignPod lets the scheduler reuse results between equal pods, but not while
// nodes arrive: whether a node is open then depends on which pod asks.
func (p *Plugin) SignPod(context.Context, *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if r := p.core.Reservations; r != nil && len(r.Kept()) > 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	return nil, nil
}

func ofDaemonSet(pod *corev1.Pod) bool {
	ref := metav1.GetControllerOf(pod)
	return ref != nil && ref.Kind == "DaemonSet"
}

// notOn leaves out the pods that the node's numbers count already: bound a moment
// ago, or nominated, which the scheduler adds before it filters.
func notOn(pods []*corev1.Pod, nodeInfo fwk.NodeInfo) []*corev1.Pod {
	if len(pods) == 0 {
		return nil
	}
	counted := make(map[types.UID]bool, len(nodeInfo.GetPods()))
	for _, on := range nodeInfo.GetPods() {
		counted[on.GetPod().UID] = true
	}
	out := make([]*corev1.Pod, 0, len(pods))
	for _, p := range pods {
		if !counted[p.UID] {
			out = append(out, p)
		}
	}
	return out
}

// roomFor reports whether the node holds the pod beside what is on it and the
// kept pods. Only what the pod asks for itself counts: a shortage of anything
// else is not its doing.
func (p *Plugin) roomFor(pod *corev1.Pod, kept []*corev1.Pod, nodeInfo fwk.NodeInfo) bool {
	want, need := p.sizes.of(pod), p.sizes.sum(kept)
	used, have := nodeInfo.GetRequested(), nodeInfo.GetAllocatable()
	fits := func(want, need, used, have int64) bool { return want == 0 || want+need+used <= have }
	if len(nodeInfo.GetPods())+len(kept)+1 > have.GetAllowedPodNumber() ||
		!fits(want.MilliCPU, need.MilliCPU, used.GetMilliCPU(), have.GetMilliCPU()) ||
		!fits(want.Memory, need.Memory, used.GetMemory(), have.GetMemory()) ||
		!fits(want.EphemeralStorage, need.EphemeralStorage, used.GetEphemeralStorage(), have.GetEphemeralStorage()) {
		return false
	}
	for name, n := range want.ScalarResources {
		if !fits(n, need.ScalarResources[name], used.GetScalarResources()[name], have.GetScalarResources()[name]) {
			return false
		}
	}
	return true
}

// portsClash reports whether the pod asks for a host port that a kept pod needs.
func portsClash(pod *corev1.Pod, kept []*corev1.Pod) bool {
	want := schedulerutil.GetHostPorts(pod)
	if len(want) == 0 {
		return false
	}
	taken := fwk.HostPortInfo{}
	for _, k := range kept {
		for _, port := range schedulerutil.GetHostPorts(k) {
			taken.Add(port.HostIP, string(port.Protocol), port.HostPort)
		}
	}
	for _, port := range want {
		if taken.CheckConflict(port.HostIP, string(port.Protocol), port.HostPort) {
			return true
		}
	}
	return false
}

// sizes remembers what pods request while nodes arrive: adding it up from the
// containers costs some microseconds a pod, and each foreign pod asks for all of a
// node's pods. The zero value is ready.
type sizes struct {
	mu    sync.Mutex
	known map[*corev1.Pod]*framework.Resource
}

// mostSizes bounds the memory where there is always some node arriving.
const mostSizes = 20000

// of returns the pod's requests, which are not to be changed.
func (s *sizes) of(pod *corev1.Pod) *framework.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookup(pod)
}

func (s *sizes) sum(pods []*corev1.Pod) *framework.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := &framework.Resource{}
	for _, pod := range pods {
		r := s.lookup(pod)
		sum.MilliCPU += r.MilliCPU
		sum.Memory += r.Memory
		sum.EphemeralStorage += r.EphemeralStorage
		for name, n := range r.ScalarResources {
			sum.AddScalar(name, n)
		}
	}
	return sum
}

func (s *sizes) lookup(pod *corev1.Pod) *framework.Resource {
	if r := s.known[pod]; r != nil {
		return r
	}
	if s.known == nil || len(s.known) >= mostSizes {
		s.known = map[*corev1.Pod]*framework.Resource{}
	}
	r := framework.NewResource(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
	s.known[pod] = r
	return r
}

// drop forgets all pods.
func (s *sizes) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) > 0 {
		s.known = nil
	}
}
