// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/karpenter-provider-aws/pkg/apis"
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/slipway-sh/slipway/test/compare/input"
)

// world is a cluster with Karpenter at work.
type world struct {
	store    *store
	provider *provider
	clock    *clocktesting.FakeClock
	cluster  *state.Cluster
	prov     *provisioning.Provisioner
	queue    *disruption.Queue
	recorder events.Recorder
	methods  []disruption.Method

	machines map[string]*machine       // by node
	pods     map[types.UID]*corev1.Pod // what Karpenter plans with are copies of these
	boot     time.Duration
	full     bool
	out      answer
	serial   int
}

// machine is a node: its price, and what is free of it.
type machine struct {
	node             *corev1.Node
	claim            *karpv1.NodeClaim
	price            float64
	cpu, memory      int64 // allocatable, in millicores and bytes
	freeCPU, freeMem int64
	room             int64 // pods
}

// unchanged takes commands as they are: nothing happens in the 15 seconds for which Karpenter waits before it looks again.
type unchanged struct{}

func (unchanged) Validate(_ context.Context, c disruption.Command, _ time.Duration) (disruption.Command, error) {
	return c, nil
}

func newWorld(d *day) (*world, error) {
	w := &world{
		store:    &store{Client: fake.NewClientBuilder().WithScheme(scheme.Scheme).Build(), pools: d.Pools, claims: map[string]*karpv1.NodeClaim{}, pods: map[string][]*corev1.Pod{}},
		provider: &provider{d.InstanceTypes()}, clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		recorder: events.NewRecorder(&record.FakeRecorder{}), machines: map[string]*machine{}, pods: map[types.UID]*corev1.Pod{},
		boot: time.Duration(d.Boot) * time.Second, full: d.Full,
	}
	for _, p := range d.Pools {
		p.UID = types.UID(p.Name)
		for _, kind := range []string{karpv1.ConditionTypeValidationSucceeded, karpv1.ConditionTypeNodeClassReady} {
			p.StatusConditions().SetTrue(kind)
		}
	}
	w.cluster = state.NewCluster(w.clock, w.store, w.provider)
	w.prov = provisioning.NewProvisioner(w.store, w.recorder, w.provider, w.cluster, w.clock, nil, nil)
	w.queue = disruption.NewQueue(w.store, w.recorder, w.cluster, w.clock, w.prov)
	c := disruption.MakeConsolidation(w.clock, w.cluster, w.store, w.prov, w.provider, w.recorder, w.queue)
	as := disruption.WithValidator(unchanged{})
	w.methods = []disruption.Method{disruption.NewEmptiness(c, as), disruption.NewMultiNodeConsolidation(c, as), disruption.NewSingleNodeConsolidation(c, as)}
	return w, nil
}

// live lets the day pass.
func (w *world) live(ctx context.Context, d *day) (answer, error) {
	leaving := map[int][]*corev1.Pod{} // by the step in which they end
	next, steps := 0, d.Seconds/d.Step
	nodes := 0
	for s := range steps {
		for _, p := range leaving[s] {
			w.leave(p)
			delete(w.pods, p.UID)
		}
		delete(leaving, s)
		var come []*corev1.Pod
		for next < len(d.Arrivals) && d.Arrivals[next].At < (s+1)*d.Step {
			a := d.Arrivals[next]
			p := d.Kinds[a.Kind].DeepCopy()
			p.Name, p.UID = fmt.Sprintf("%s-%d", p.Name, next), types.UID("pod-"+strconv.Itoa(next))
			p.CreationTimestamp = metav1.NewTime(w.clock.Now())
			w.pods[p.UID] = p
			come = append(come, p)
			leaving[s+max(1, a.Life/d.Step)] = append(leaving[s+max(1, a.Life/d.Step)], p)
			next++
		}
		if err := w.schedule(ctx, come); err != nil {
			return answer{}, err
		}
		if s%(d.Every/d.Step) == 0 {
			if err := w.consolidate(ctx, d.Every); err != nil {
				return answer{}, err
			}
		}
		for _, m := range w.machines {
			w.out.Dollars += m.price * float64(d.Step) / 3600
		}
		nodes += len(w.machines)
		w.clock.Step(time.Duration(d.Step) * time.Second)
	}
	w.out.Nodes = float64(nodes) / float64(steps)
	return w.out, nil
}

// schedule places pods as kube-scheduler does: one after the other, on the node of which most is left (least, if full nodes
// are preferred); those that fit on none are Karpenter's.
func (w *world) schedule(ctx context.Context, pods []*corev1.Pod) error {
	var waiting []*corev1.Pod
	for _, p := range pods {
		cpu, memory := requests(p)
		var best *machine
		most := 0.0
		for _, m := range w.machines {
			if cpu > m.freeCPU || memory > m.freeMem || m.room < 1 {
				continue
			}
			score := float64(m.freeCPU-cpu)/float64(m.cpu) + float64(m.freeMem-memory)/float64(m.memory)
			if w.full {
				score = -score
			}
			if best == nil || score > most || score == most && m.node.Name < best.node.Name {
				best, most = m, score
			}
		}
		if best == nil {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
			waiting = append(waiting, p)
			continue
		}
		if err := w.place(ctx, p, best); err != nil {
			return err
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	w.out.Late += len(waiting)
	return w.provision(ctx, waiting)
}

// provision buys what Karpenter's scheduler plans, with the options that its Schedule has.
func (w *world) provision(ctx context.Context, pods []*corev1.Pod) error {
	s, err := w.prov.NewScheduler(ctx, pods, w.cluster.DeepCopyNodes().Active(), nil,
		scheduling.DisableReservedCapacityFallback, scheduling.NumConcurrentReconciles(1))
	if err != nil {
		return err
	}
	r, err := s.Solve(ctx, pods)
	if err != nil {
		return err
	}
	for p, err := range r.PodErrors {
		return fmt.Errorf("pod %s has no place: %w", p.Name, err)
	}
	r = r.TruncateInstanceTypes(ctx, scheduling.MaxInstanceTypes)
	return w.carry(ctx, r.NewNodeClaims, r.ExistingNodes)
}

// carry buys the claims and places pods where they were planned.
func (w *world) carry(ctx context.Context, claims []*scheduling.NodeClaim, existing []*scheduling.ExistingNode) error {
	for _, n := range existing {
		for _, p := range n.Pods {
			if err := w.place(ctx, p, w.machines[n.Name()]); err != nil {
				return err
			}
		}
	}
	for _, c := range claims {
		m, err := w.buy(ctx, c)
		if err != nil {
			return err
		}
		for _, p := range c.Pods {
			if err := w.place(ctx, p, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// buy gets the cheapest of what a claim asks for, as EC2 does on demand.
func (w *world) buy(ctx context.Context, c *scheduling.NodeClaim) (*machine, error) {
	t, o := input.Cheapest(c)
	if o == nil {
		return nil, fmt.Errorf("a claim of pool %q has no offering", c.NodePoolName)
	}
	w.serial++
	w.out.Bought++
	name := fmt.Sprintf("node-%05d", w.serial)
	now := metav1.NewTime(w.clock.Now())
	labels := map[string]string{
		karpv1.NodePoolLabelKey: c.NodePoolName, corev1.LabelHostname: name, corev1.LabelInstanceTypeStable: t.Name,
		corev1.LabelTopologyZone: o.Zone(), karpv1.CapacityTypeLabelKey: o.CapacityType(),
		karpv1.NodeRegisteredLabelKey: "true", karpv1.NodeInitializedLabelKey: "true",
	}
	for key, r := range t.Requirements {
		if _, has := labels[key]; !has && r.Operator() == corev1.NodeSelectorOpIn && r.Len() == 1 {
			labels[key] = r.Any()
		}
	}
	m := &machine{price: o.Price}
	m.claim = &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels, CreationTimestamp: now}}
	m.claim.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: apis.Group, Kind: "EC2NodeClass", Name: "default"}
	m.claim.Status = karpv1.NodeClaimStatus{NodeName: name, ProviderID: "days:///" + name, Capacity: t.Capacity, Allocatable: t.Allocatable()}
	for _, kind := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized, karpv1.ConditionTypeConsolidatable} {
		m.claim.Status.Conditions = append(m.claim.Status.Conditions, status.Condition{Type: kind, Status: metav1.ConditionTrue, LastTransitionTime: now})
	}
	m.node = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels, CreationTimestamp: now}, Spec: corev1.NodeSpec{ProviderID: "days:///" + name},
		Status: corev1.NodeStatus{Capacity: t.Capacity, Allocatable: t.Allocatable(), Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	free := t.Allocatable()
	m.cpu, m.memory, m.room = free.Cpu().MilliValue(), free.Memory().Value(), free.Pods().Value()
	m.freeCPU, m.freeMem = m.cpu, m.memory
	w.machines[name], w.store.claims[name] = m, m.claim
	w.cluster.UpdateNodeClaim(m.claim)
	return m, w.cluster.UpdateNode(ctx, m.node)
}

func requests(p *corev1.Pod) (cpu, memory int64) {
	r := p.Spec.Containers[0].Resources.Requests
	return r.Cpu().MilliValue(), r.Memory().Value()
}

func (w *world) place(ctx context.Context, p *corev1.Pod, m *machine) error {
	cpu, memory := requests(p)
	if m == nil || cpu > m.freeCPU || memory > m.freeMem || m.room < 1 {
		return fmt.Errorf("pod %s does not fit where it was planned", p.Name)
	}
	p = w.pods[p.UID]
	m.freeCPU, m.freeMem, m.room = m.freeCPU-cpu, m.freeMem-memory, m.room-1
	p.Spec.NodeName, p.Status.Phase, p.Status.Conditions = m.node.Name, corev1.PodRunning, nil
	w.store.put(p)
	return w.cluster.UpdatePod(ctx, p)
}

// leave takes a pod off its node.
func (w *world) leave(p *corev1.Pod) {
	m := w.machines[p.Spec.NodeName]
	cpu, memory := requests(p)
	m.freeCPU, m.freeMem, m.room = m.freeCPU+cpu, m.freeMem+memory, m.room+1
	w.store.take(p)
	w.cluster.DeletePod(client.ObjectKeyFromObject(p))
}
