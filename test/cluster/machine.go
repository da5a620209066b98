// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"github.com/slipway-sh/slipway/test/ec2emu"
)

// leaseDuration is what a node's lease claims, in seconds. A kubelet's default.
const leaseDuration = 40

// Machine is a booted instance as its kubelet sees itself: what the EC2 emulator hands to the kubelet.
type Machine = ec2emu.Machine

var _ ec2emu.Kubelet = (*Kubelet)(nil)

// machine is a joined Machine.
type machine struct {
	Machine
	faults Faults
	uid    types.UID // of its Node

	// Guarded by Kubelet.mu.
	gone        bool
	ready       bool
	allocatable corev1.ResourceList
	used        corev1.ResourceList
	images      imageStore
}

func (m *machine) name() string {
	if m == nil {
		return ""
	}
	return m.NodeName
}

// Join registers the machine's Node, NotReady, starts its heartbeat and returns. The node turns Ready by itself
// after m.ReadyAfter, and pods bound to it run from then on (those with host network at once). A Node that exists
// already is taken over, as a kubelet does after a restart.
//
// It fails as a kubelet would: on a label that a kubelet may not set, and with the API server's error on whatever
// that refuses, such as a malformed label or taint.
func (k *Kubelet) Join(ctx context.Context, m Machine) error {
	for label := range m.Labels {
		if err := checkLabel(label); err != nil {
			return fmt.Errorf("joining node %q: %w", m.NodeName, err)
		}
	}
	joined := &machine{Machine: m, faults: k.opts.Faults(m)}
	joined.images.pull(m.Images, time.Now(), k.opts.ImagePull)
	joined.allocatable = withoutLate(m.Allocatable, joined.faults)
	node, err := k.register(asNode(ctx, m.NodeName), joined)
	if err != nil {
		return fmt.Errorf("joining node %q: %w", m.NodeName, err)
	}
	joined.uid = node.UID
	if err := k.createLease(asNode(ctx, m.NodeName), joined); err != nil {
		return fmt.Errorf("joining node %q: %w", m.NodeName, err)
	}

	k.mu.Lock()
	if old := k.machines[m.NodeName]; old != nil {
		old.gone = true
	}
	k.machines[m.NodeName] = joined
	k.mu.Unlock()

	k.queue.AddAfter(task{kind: renewLease, machine: joined}, k.heartbeat())
	if !joined.faults.NeverReady {
		k.queue.AddAfter(task{kind: becomeReady, machine: joined}, m.ReadyAfter)
	}
	for name, after := range joined.faults.LateResources {
		k.queue.AddAfter(task{kind: showResource, machine: joined, resource: name}, after)
	}
	for i, t := range joined.faults.AgentTaints {
		k.queue.AddAfter(task{kind: addTaint, machine: joined, taint: i}, t.After)
	}
	k.syncPodsOf(m.NodeName) // host network pods may have come before us
	return nil
}

// Leave makes the machine vanish without a word, as a terminated instance does: no heartbeats and no pod status
// any more. The Node and its pods stay, for others to notice and remove.
func (k *Kubelet) Leave(_ context.Context, nodeName string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.machines[nodeName]; m != nil {
		m.gone = true
		delete(k.machines, nodeName)
	}
}

// forget drops the machine of a node that was deleted from the API server.
func (k *Kubelet) forget(node *corev1.Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.machines[node.Name]; m != nil && m.uid == node.UID {
		m.gone = true
		delete(k.machines, node.Name)
	}
}

func (k *Kubelet) isGone(m *machine) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return m.gone
}

// syncPodsOf has all pods of a node looked at.
func (k *Kubelet) syncPodsOf(nodeName string) {
	keys, err := k.pods.GetIndexer().IndexKeys(byNode, nodeName)
	if err != nil {
		k.log.Error(err, "reading pod index", "node", nodeName)
		return
	}
	for _, key := range keys {
		k.queue.Add(task{kind: syncPod, pod: key})
	}
}

// checkLabel refuses what a kubelet refuses in --node-labels: labels of Kubernetes' own domains, save a few.
func checkLabel(label string) error {
	domain, _, found := strings.Cut(label, "/")
	reserved := found && (domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") ||
		domain == "k8s.io" || strings.HasSuffix(domain, ".k8s.io"))
	if reserved && !kubeletapis.IsKubeletLabel(label) {
		return fmt.Errorf("label %q may not be set by a kubelet", label)
	}
	return nil
}

// register creates the Node, or takes over the one that is there.
func (k *Kubelet) register(ctx context.Context, m *machine) (*corev1.Node, error) {
	node := newNode(m, k.version, metav1.Now())
	created, err := k.node.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return created, err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": node.Labels}, "status": node.Status})
	if err != nil {
		return nil, fmt.Errorf("encoding node: %w", err)
	}
	// The second call sees only status, and the first everything else.
	if _, err := k.node.CoreV1().Nodes().Patch(ctx, m.NodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return nil, err
	}
	return k.node.CoreV1().Nodes().Patch(ctx, m.NodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

// heartbeat is the time to the next renewal. Jitter keeps a burst of nodes from renewing in step.
func (k *Kubelet) heartbeat() time.Duration {
	return time.Duration(float64(k.opts.LeaseInterval) * (0.9 + 0.1*rand.Float64()))
}

func (k *Kubelet) createLease(ctx context.Context, m *machine) error {
	now := metav1.NowMicro()
	_, err := k.node.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: m.NodeName, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: m.NodeName, UID: m.uid},
		}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(m.NodeName), LeaseDurationSeconds: new(int32(leaseDuration)), RenewTime: &now,
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return k.patchLease(ctx, m, now)
	}
	return err
}

// patchLease renews a lease and makes it this node's.
func (k *Kubelet) patchLease(ctx context.Context, m *machine, now metav1.MicroTime) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"ownerReferences": []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: m.NodeName, UID: m.uid},
		}},
		"spec": map[string]any{"holderIdentity": m.NodeName, "renewTime": now},
	})
	if err != nil {
		return fmt.Errorf("encoding lease: %w", err)
	}
	_, err = k.node.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(ctx, m.NodeName, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (k *Kubelet) renewLease(ctx context.Context, t task) error {
	ctx = asNode(ctx, t.machine.NodeName)
	err := k.patchLease(ctx, t.machine, metav1.NowMicro())
	if apierrors.IsNotFound(err) {
		err = k.createLease(ctx, t.machine)
	}
	if err != nil {
		return fmt.Errorf("renewing lease: %w", err)
	}
	k.queue.AddAfter(t, k.heartbeat())
	return nil
}

// becomeReady reports the node Ready and lets its pods run.
func (k *Kubelet) becomeReady(ctx context.Context, m *machine) error {
	if err := k.patchNodeStatus(ctx, m, corev1.NodeStatus{Conditions: nodeConditions(true, metav1.Now())}); err != nil {
		return fmt.Errorf("reporting ready: %w", err)
	}
	k.mu.Lock()
	m.ready = true
	k.mu.Unlock()
	k.syncPodsOf(m.NodeName)
	return nil
}

// showResource makes a late resource appear.
func (k *Kubelet) showResource(ctx context.Context, m *machine, name corev1.ResourceName) error {
	capacity, allocatable := m.Capacity[name], m.Allocatable[name]
	err := k.patchNodeStatus(ctx, m, corev1.NodeStatus{
		Capacity:    corev1.ResourceList{name: capacity},
		Allocatable: corev1.ResourceList{name: allocatable},
	})
	if err != nil {
		return fmt.Errorf("reporting resource %q: %w", name, err)
	}
	k.mu.Lock()
	m.allocatable[name] = allocatable
	k.mu.Unlock()
	return nil
}

// patchNodeStatus changes what is set in status. A node that is no more is no error: its machine is forgotten soon.
func (k *Kubelet) patchNodeStatus(ctx context.Context, m *machine, status corev1.NodeStatus) error {
	patch, err := statusPatch(m.uid, status)
	if err != nil {
		return err
	}
	_, err = k.node.CoreV1().Nodes().Patch(asNode(ctx, m.NodeName), m.NodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// taint puts one of the machine's agent taints on its node, or takes it off.
func (k *Kubelet) taint(ctx context.Context, t task) error {
	want := t.machine.faults.AgentTaints[t.taint]
	node, err := k.client.CoreV1().Nodes().Get(ctx, t.machine.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading node: %w", err)
	}
	taints := node.Spec.Taints
	node.Spec.Taints = nil
	for _, has := range taints {
		if !has.MatchTaint(&want.Taint) {
			node.Spec.Taints = append(node.Spec.Taints, has)
		}
	}
	if t.kind == addTaint {
		node.Spec.Taints = append(node.Spec.Taints, want.Taint)
	}
	// An update, not a patch: it is refused if somebody else changed the taints meanwhile, and then tried again.
	if _, err := k.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("changing taints: %w", err)
	}
	if t.kind == addTaint && want.For > 0 {
		k.queue.AddAfter(task{kind: removeTaint, machine: t.machine, taint: t.taint}, want.For)
	}
	return nil
}
