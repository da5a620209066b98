// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// Times are the instants of one pod's way, as seen from outside; zero where it did not get there.
type Times struct {
	Pod types.NamespacedName
	// Created is when the watch showed the pod, Bound when it showed its node, Running when it ran.
	Created, Bound, Running time.Time
	// Offered and Planned are what the scheduler wrote on the pod's NodeClaim.
	Offered, Planned time.Time
	// Requested is when the CreateFleet request that brought its node arrived at EC2, Answered when EC2 had answered.
	Requested, Answered time.Time
	// Registered is when the node appeared, Ready when its kubelet said so, Usable when its claim was registered.
	Registered, Ready, Usable time.Time
	Node                      string
}

// Observer watches pods, nodes and claims from its start on.
type Observer struct {
	emulator *ec2emu.Emulator

	mu      sync.Mutex
	pods    map[types.UID]*podTimes
	nodes   map[string]*nodeTimes
	claims  map[string]*claimTimes
	changed chan struct{}
	stop    context.CancelFunc
}

type podTimes struct {
	key                     types.NamespacedName
	created, bound, running time.Time
	node                    string
	deleted                 bool
}

type nodeTimes struct {
	provider                  string
	registered, ready, usable time.Time
}

type claimTimes struct {
	pods             []types.NamespacedName
	offered, planned time.Time
	provider         string
}

// NewObserver starts watching; call Stop to end it.
func NewObserver(ctx context.Context, b *Bed) (*Observer, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	o := &Observer{
		emulator: b.Emulator, stop: cancel, changed: make(chan struct{}),
		pods: map[types.UID]*podTimes{}, nodes: map[string]*nodeTimes{}, claims: map[string]*claimTimes{},
	}
	if err := o.watch(ctx, b.Cluster.Config()); err != nil {
		cancel()
		return nil, err
	}
	return o, nil
}

// Stop ends the watches.
func (o *Observer) Stop() { o.stop() }

func (o *Observer) watch(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating client: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(on(o.pod)); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(on(o.node)); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	claims, err := ctrlcache.New(config, ctrlcache.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("creating cache: %w", err)
	}
	informer, err := claims.GetInformer(ctx, &karpv1.NodeClaim{}, ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching NodeClaims: %w", err)
	}
	if _, err := informer.AddEventHandler(on(o.claim)); err != nil {
		return fmt.Errorf("watching NodeClaims: %w", err)
	}
	factory.Start(ctx.Done())
	go func() { _ = claims.Start(ctx) }() // ends with ctx; a failed start shows below
	factory.WaitForCacheSync(ctx.Done())
	if !claims.WaitForCacheSync(ctx) {
		return fmt.Errorf("watching NodeClaims: the cache did not sync")
	}
	return nil
}

// on adapts a method for typed objects to informer events.
func on[T any](f func(obj T, deleted bool)) cache.ResourceEventHandler {
	call := func(obj any, deleted bool) {
		if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = t.Obj
		}
		if v, ok := obj.(T); ok {
			f(v, deleted)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { call(obj, false) },
		UpdateFunc: func(_, obj any) { call(obj, false) },
		DeleteFunc: func(obj any) { call(obj, true) },
	}
}

func (o *Observer) note() {
	close(o.changed)
	o.changed = make(chan struct{})
}

func first(t *time.Time, cond bool) {
	if cond && t.IsZero() {
		*t = time.Now()
	}
}

func (o *Observer) pod(p *corev1.Pod, deleted bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.note()
	t := o.pods[p.UID]
	if t == nil {
		t = &podTimes{key: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}}
		o.pods[p.UID] = t
	}
	first(&t.created, true)
	first(&t.bound, p.Spec.NodeName != "")
	first(&t.running, p.Status.Phase == corev1.PodRunning)
	t.node, t.deleted = p.Spec.NodeName, deleted
}

func (o *Observer) node(n *corev1.Node, _ bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.note()
	t := o.nodes[n.Name]
	if t == nil {
		t = &nodeTimes{}
		o.nodes[n.Name] = t
	}
	t.provider = n.Spec.ProviderID
	first(&t.registered, true)
	ready := false
	for _, c := range n.Status.Conditions {
		ready = ready || (c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue)
	}
	first(&t.ready, ready)
	closed := false
	for _, taint := range n.Spec.Taints {
		// Pods tolerate the lifecycle controller's NoExecute taints, which go seconds after the node is ready.
		lingers := taint.Effect == corev1.TaintEffectNoExecute && taint.Key == corev1.TaintNodeNotReady
		closed = closed || (taint.Effect != corev1.TaintEffectPreferNoSchedule && !lingers)
	}
	first(&t.usable, ready && !closed && n.Labels[karpv1.NodeRegisteredLabelKey] == "true")
}

func (o *Observer) claim(c *karpv1.NodeClaim, _ bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.note()
	t := &claimTimes{provider: c.Status.ProviderID}
	for item := range strings.SplitSeq(c.Annotations[provisioner.PodsAnnotation], ",") {
		if ns, name, ok := strings.Cut(item, "/"); ok {
			t.pods = append(t.pods, types.NamespacedName{Namespace: ns, Name: name})
		}
	}
	t.offered, _ = time.Parse(time.RFC3339Nano, c.Annotations[provisioner.OfferedAnnotation])
	t.planned, _ = time.Parse(time.RFC3339Nano, c.Annotations[provisioner.PlannedAnnotation])
	o.claims[c.Name] = t
}

// Changed is closed when something happens after the call.
func (o *Observer) Changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed
}

// Counts says how many of the pods whose name has the prefix exist, are bound and run.
func (o *Observer) Counts(prefix string) (pods, bound, running int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range o.pods {
		if t.deleted || !strings.HasPrefix(t.key.Name, prefix) {
			continue
		}
		pods++
		if !t.bound.IsZero() {
			bound++
		}
		if !t.running.IsZero() {
			running++
		}
	}
	return pods, bound, running
}

// Deleted is how many of the pods whose name has the prefix were deleted.
func (o *Observer) Deleted(prefix string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, t := range o.pods {
		if t.deleted && strings.HasPrefix(t.key.Name, prefix) {
			n++
		}
	}
	return n
}

// NodesOfClaims names the node of each NodeClaim that has one.
func (o *Observer) NodesOfClaims() map[string]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	nodes := map[string]string{}
	for name, n := range o.nodes {
		nodes[n.provider] = name
	}
	out := map[string]string{}
	for name, c := range o.claims {
		if node := nodes[c.provider]; node != "" {
			out[name] = node
		}
	}
	return out
}

// Claims is how many NodeClaims were seen, deleted ones included, and for how many of the pods more than one was bought.
func (o *Observer) Claims() (claims, second int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	bought := map[types.NamespacedName]int{}
	for _, c := range o.claims {
		for _, p := range c.pods {
			bought[p]++
		}
	}
	for _, n := range bought {
		if n > 1 {
			second++
		}
	}
	return len(o.claims), second
}

// Pods returns the times of the pods whose name has the prefix.
func (o *Observer) Pods(prefix string) []Times {
	requests := o.emulator.Requests()
	o.mu.Lock()
	defer o.mu.Unlock()
	fleet := map[string]ec2emu.Request{} // by instance
	for _, r := range requests {
		if r.Action == "CreateFleet" {
			for _, id := range r.Instances {
				fleet[id] = r
			}
		}
	}
	claimOf, providerOf := map[types.NamespacedName]*claimTimes{}, map[string]*claimTimes{}
	for _, c := range o.claims {
		providerOf[c.provider] = c
		for _, p := range c.pods {
			claimOf[p] = c
		}
	}
	var out []Times
	for _, p := range o.pods {
		if p.deleted || !strings.HasPrefix(p.key.Name, prefix) {
			continue
		}
		t := Times{Pod: p.key, Created: p.created, Bound: p.bound, Running: p.running, Node: p.node}
		c, n := claimOf[p.key], o.nodes[p.node]
		if c == nil && n != nil {
			c = providerOf[n.provider] // bought before the pod existed
		}
		if c != nil {
			t.Offered, t.Planned = c.offered, c.planned
			if r, ok := fleet[c.provider[strings.LastIndex(c.provider, "/")+1:]]; ok {
				t.Requested, t.Answered = r.At, r.At.Add(r.Took)
			}
		}
		if n != nil {
			t.Registered, t.Ready, t.Usable = n.registered, n.ready, n.usable
		}
		out = append(out, t)
	}
	return out
}
