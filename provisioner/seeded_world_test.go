// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/demand"
	"github.com/slipway-sh/slipway/provisioner/launch"
	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
)

// world is a scheduler, controllers, EC2 and a run of bad luck around a provisioner, all in virtual time and from one seed.
type world struct {
	*bed
	rng    *rand.Rand
	kill   context.CancelFunc // ends the provisioner
	owners []*worldOwner
	serial int

	later sync.Mutex
	due   []action // what is to happen, in no order; guarded by later

	mu     sync.Mutex // guards what the provisioner's goroutines reach
	queue  []types.UID
	parked map[types.UID]time.Time
	claims map[string]*worldClaim
	// second are pods that were bought for although an earlier claim of theirs was alive and had room for them.
	second []string
}

type action struct {
	at time.Time
	do func()
}

// worldOwner is a ReplicaSet.
type worldOwner struct {
	uid  types.UID
	cpu  int64 // millicores of each pod
	want int
	pods map[types.UID]*corev1.Pod
}

// worldClaim is a claim with its node.
type worldClaim struct {
	pods    []types.NamespacedName
	node    string
	usable  bool
	leaving bool
}

// worldGate is the gate of one process.
type worldGate struct {
	w     *world
	alive context.Context //nolint:containedctx // the process's life: a gate of one that was killed opens nothing
}

func (g worldGate) Release(uids ...types.UID) {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	if g.alive.Err() != nil {
		return
	}
	for _, uid := range uids {
		delete(g.w.parked, uid)
		if !slices.Contains(g.w.queue, uid) {
			g.w.queue = append(g.w.queue, uid)
		}
	}
}

func (worldGate) Reserve(types.UID, string) bool { return false }

func (g worldGate) Parked(atLeast time.Duration) (out []types.UID) {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	for uid, since := range g.w.parked {
		if time.Since(since) >= atLeast {
			out = append(out, uid)
		}
	}
	return out
}

// Coming implements Owners.
func (w *world) Coming(_ context.Context, pod *corev1.Pod) (n int, pending []types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ref := metav1.GetControllerOf(pod)
	for _, o := range w.owners {
		if ref == nil || o.uid != ref.UID {
			continue
		}
		for uid, p := range o.pods {
			if p.Spec.NodeName == "" {
				pending = append(pending, uid)
			}
		}
		slices.Sort(pending)
		return max(o.want-len(o.pods), 0), pending
	}
	return 0, nil
}

// Launch implements Launcher: EC2 boots a machine for each claim.
func (w *world) Launch(_ context.Context, claims []*karpv1.NodeClaim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range claims {
		w.boot(c)
	}
}

func (w *world) boot(c *karpv1.NodeClaim) {
	pods := splitPods(c.Annotations[PodsAnnotation])
	for _, key := range pods {
		for name, other := range w.claims {
			if !other.leaving && name != c.Name && slices.Contains(other.pods, key) && w.holds(other, key) {
				w.second = append(w.second, fmt.Sprintf("%s: %s, after %s", key, c.Name, name))
			}
		}
	}
	w.serial++
	w.claims[c.Name] = &worldClaim{pods: pods, node: fmt.Sprintf("node-%d", w.serial)}
	name := c.Name
	w.after(w.upTo(2*time.Second), func() { w.answer(name) })
}

// holds reports whether the claim's node still has, or will have, room for the pod.
func (w *world) holds(c *worldClaim, key types.NamespacedName) bool {
	pod, err := w.cluster.Pods().Pods(key.Namespace).Get(key.Name)
	if err != nil || pod.Spec.NodeName != "" {
		return false
	}
	return !c.usable || w.free(c.node) >= millis(pod)
}

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

// after has something happen later, in the main goroutine.
func (w *world) after(d time.Duration, do func()) {
	w.later.Lock()
	defer w.later.Unlock()
	w.due = append(w.due, action{time.Now().Add(d), do})
}

// next takes the earliest of what is due by now, nil if nothing is.
func (w *world) next() func() {
	w.later.Lock()
	defer w.later.Unlock()
	i := -1
	for k, a := range w.due {
		if !a.at.After(time.Now()) && (i < 0 || a.at.Before(w.due[i].at)) {
			i = k
		}
	}
	if i < 0 {
		return nil
	}
	do := w.due[i].do
	w.due = slices.Delete(w.due, i, i+1)
	return do
}

// dice are the world's source of chance, which its own goroutine and the provisioner's share.
type dice struct {
	mu     sync.Mutex
	source rand.Source
}

// Uint64 implements rand.Source.
func (d *dice) Uint64() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.source.Uint64()
}

// answer gives the claim its instance and boots it.
func (w *world) answer(name string) {
	c := &karpv1.NodeClaim{}
	if err := w.api.Get(w.ctx, types.NamespacedName{Name: name}, c); err != nil || !c.DeletionTimestamp.IsZero() {
		return
	}
	node := w.claims[name].node
	before := c.DeepCopy()
	c.Annotations[launch.NodeNameAnnotation] = node
	cpu, kind := shape(c)
	maps.Copy(c.Labels, map[string]string{corev1.LabelInstanceTypeStable: kind, corev1.LabelTopologyZone: "a", karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeOnDemand})
	w.check(w.api.Patch(w.ctx, c, client.MergeFrom(before)))
	c.Status.ProviderID = "aws:///a/" + node
	c.Status.Capacity = builder.Node(node).CPU(cpu).Memory("64Gi").Obj().Status.Capacity
	c.Status.Allocatable = c.Status.Capacity
	w.check(w.api.Status().Update(w.ctx, c))
	w.onClaim(w.ctx, c, false)
	w.Report(launch.Outcome{Claim: c, NodeName: node})
	w.after(w.upTo(40*time.Second), func() { w.join(name, false) })
	ready := 40*time.Second + w.upTo(10*time.Second)
	w.after(ready, func() { w.join(name, true) })
	if w.rng.IntN(4) == 0 { // it flaps
		w.after(ready+time.Second, func() { w.join(name, false) })
		w.after(ready+5*time.Second, func() { w.join(name, true) })
	}
}

// shape is what EC2 answers a claim with: the smaller of the shop's types, if that holds its pods.
func shape(c *karpv1.NodeClaim) (cpu, kind string) {
	if q := c.Spec.Resources.Requests[corev1.ResourceCPU]; q.MilliValue() > 4000 {
		return "16", "m5.4xlarge"
	}
	return "4", "m5.xlarge"
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Error(err)
	}
}

// join shows the claim's node, ready or not.
func (w *world) join(name string, ready bool) {
	state := w.claims[name]
	c := &karpv1.NodeClaim{}
	if err := w.api.Get(w.ctx, types.NamespacedName{Name: name}, c); err != nil || state.leaving {
		return
	}
	cpu, kind := shape(c)
	b := builder.Node(state.node).CPU(cpu).Memory("64Gi").ProviderID(c.Status.ProviderID).Label(karpv1.NodeRegisteredLabelKey, "true").Label(karpv1.NodePoolLabelKey, "p").
		Label(corev1.LabelInstanceTypeStable, kind).Label(corev1.LabelTopologyZone, "a").Label(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeOnDemand)
	if !ready {
		b = b.NotReady()
	}
	state.usable = state.usable || ready
	n := b.Obj()
	w.cluster.Put(n)
	if c.Status.NodeName == "" {
		c.Status.NodeName = n.Name
		w.check(w.api.Status().Update(w.ctx, c))
		w.onClaim(w.ctx, c, false)
	}
	w.onNode(w.ctx, n, false)
}

// lose deletes a claim with its node and the pods on it.
func (w *world) loseClaim(name string) {
	state := w.claims[name]
	c := &karpv1.NodeClaim{}
	if state.leaving || w.api.Get(w.ctx, types.NamespacedName{Name: name}, c) != nil {
		return
	}
	state.leaving = true
	if c.DeletionTimestamp.IsZero() {
		w.check(w.api.Delete(w.ctx, c))
		w.check(w.api.Get(w.ctx, types.NamespacedName{Name: name}, c))
	}
	w.onClaim(w.ctx, c, false)
	w.after(time.Second, func() {
		if n, err := w.cluster.Nodes().Get(state.node); err == nil {
			for _, p := range w.all() {
				if p.Spec.NodeName == n.Name {
					w.deletePod(p)
				}
			}
			w.cluster.Delete(n)
			w.onNode(w.ctx, n, true)
		}
		c.Finalizers = nil
		w.check(client.IgnoreNotFound(w.api.Update(w.ctx, c)))
		w.onClaim(w.ctx, c, true)
	})
}

func (w *world) start() {
	ctx, kill := context.WithCancel(w.bed.ctx)
	w.kill = kill
	metrics := NewMetrics()
	if w.Provisioner != nil {
		metrics = w.Metrics
	}
	p := New(Options{
		Kube: w.api, Pods: w.cluster.Pods(), Views: view.New(w.cluster.Source()), Gate: worldGate{w, ctx}, Nominator: fakeNominator{w.diary},
		Launcher: w, Events: fakeEvents{w.diary}, Owners: w, LookAhead: 100, Clock: clock.RealClock{}, Metrics: metrics, Logger: logr.Discard(),
		Batch: demand.Options{MaxAge: time.Second, MaxSize: 1000, Look: 3},
	})
	p.nodes = w.cluster.Nodes()
	w.Provisioner = p
	for _, c := range w.written() { // what informers hand over before the process leads
		p.onClaim(ctx, c, false)
	}
	go func() { w.check(p.Run(ctx)) }()
	p.Leading()
	synctest.Wait()
}

// restart kills the process and starts the next: claims whose launch was not begun are launched by it, and every pending pod
// gets a scheduling cycle.
func (w *world) restart() {
	w.kill()
	synctest.Wait()
	w.mu.Lock()
	clear(w.parked)
	w.queue = nil
	for _, p := range w.all() {
		if p.Spec.NodeName == "" {
			w.queue = append(w.queue, p.UID)
		}
	}
	for _, c := range w.written() {
		if w.claims[c.Name] == nil {
			w.boot(c)
		}
	}
	w.mu.Unlock()
	w.start()
}
