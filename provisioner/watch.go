// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"context"
	"fmt"

	"github.com/awslabs/operatorpkg/status"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/launch"
	"github.com/slipway-sh/slipway/provisioner/view"
)

// Informers are the watches the provisioner listens to.
type Informers struct {
	Pods, Nodes, Claims, Pools, NodeClass view.Informer
	// Namespaces and CSINodes concern views only.
	Namespaces, CSINodes view.Informer
	NodeLister           corelisters.NodeLister
}

// Watch registers the handlers. They do map work only, apart from releasing pods. Views take note of an event first: what
// the provisioner then forgets (a reservation, a recent claim) is already counted there.
func (p *Provisioner) Watch(ctx context.Context, in Informers) error {
	p.nodes = in.NodeLister
	err := p.Views.Follow(view.Informers{
		Pods: in.Pods, Nodes: in.Nodes, Claims: in.Claims, Namespaces: in.Namespaces, CSINodes: in.CSINodes,
		OnPod:   p.podEvents(ctx),
		OnNode:  handler(func(obj any, deleted bool) { p.onNode(ctx, obj, deleted) }),
		OnClaim: p.claimEvents(ctx),
	})
	if err != nil {
		return err
	}
	if _, err := in.Pools.AddEventHandler(p.onSupply()); err != nil {
		return fmt.Errorf("watching NodePools: %w", err)
	}
	if _, err := in.NodeClass.AddEventHandler(p.onSupply()); err != nil {
		return fmt.Errorf("watching EC2NodeClasses: %w", err)
	}
	return nil
}

// onSupply has unplaced pods planned again when a pool or class changes in a way that could let them fit. Status writes,
// which come with every node, are not such a change unless they turn readiness.
func (p *Provisioner) onSupply() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { p.Changed() },
		DeleteFunc: func(any) { p.Changed() },
		UpdateFunc: func(old, now any) {
			a, ok1 := old.(status.Object)
			b, ok2 := now.(status.Object)
			if !ok1 || !ok2 || a.GetGeneration() != b.GetGeneration() || a.StatusConditions().Root().IsTrue() != b.StatusConditions().Root().IsTrue() ||
				a.GetDeletionTimestamp().IsZero() != b.GetDeletionTimestamp().IsZero() {
				p.Changed()
			}
		},
	}
}

// handler calls do for every event, with tombstones unwrapped.
func handler(do func(obj any, deleted bool)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { do(obj, false) },
		UpdateFunc: func(_, obj any) { do(obj, false) },
		DeleteFunc: func(obj any) {
			if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = t.Obj
			}
			do(obj, true)
		},
	}
}

// podEvents tells apart that a pod is bound from whatever else happens to it later.
func (p *Provisioner) podEvents(ctx context.Context) cache.ResourceEventHandler {
	every := handler(func(obj any, deleted bool) { p.onPod(ctx, obj, deleted, false) })
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { p.onPod(ctx, obj, false, true) },
		DeleteFunc: every.OnDelete,
		UpdateFunc: func(old, now any) {
			was, ok := old.(*corev1.Pod)
			p.onPod(ctx, now, false, ok && was.Spec.NodeName == "")
		},
	}
}

// claimEvents tells apart that a claim is new.
func (p *Provisioner) claimEvents(ctx context.Context) cache.ResourceEventHandler {
	every := handler(func(obj any, deleted bool) { p.onClaim(ctx, obj, deleted) })
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			p.appeared(ctx, obj) // first: it goes by what is recent
			p.onClaim(ctx, obj, false)
		},
		UpdateFunc: every.OnUpdate,
		DeleteFunc: every.OnDelete,
	}
}

// onPod forgets pods that are bound or gone. fresh says that a pod with a node has just got it.
func (p *Provisioner) onPod(ctx context.Context, obj any, deleted, fresh bool) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	planned := ""
	if deleted || pod.Spec.NodeName != "" || !pod.DeletionTimestamp.IsZero() {
		if fresh && !deleted && pod.Spec.NodeName != "" {
			p.bound(pod)
		}
		var known bool
		if planned, known = p.ledger.remove(pod.UID, pod.Spec.NodeName); known {
			p.batch.Remove(pod.UID)
		}
	}
	if !deleted {
		p.serve(pod)
	}
	if ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed; (deleted || ended) && pod.Spec.NodeName != "" {
		p.ledger.left(pod)
		p.freed.note(pod.Spec.NodeName)
	}
	if fresh && !deleted && pod.Spec.NodeName != "" && p.ledger.busy() {
		p.landed(ctx, pod, planned)
	}
}

// bound observes how long a pod that was planned has taken to be bound to its usable node.
func (p *Provisioner) bound(pod *corev1.Pod) {
	if e, known := p.ledger.get(pod.UID); known && e.state == planned && !e.usable.IsZero() && e.node == pod.Spec.NodeName {
		p.Metrics.Step.WithLabelValues("bind").Observe(p.Clock.Since(e.usable).Seconds())
	}
}

// landed notes a pod that is on a node without having been planned there; planned is the claim it was planned on, if any.
// If the node is still awaited by the pods it was bought for, one of them may find its place taken; it is planned again as
// soon as it fails.
//
// A pod that its owner was expected to create and that found its node by itself takes a seat there, if there is one.
func (p *Provisioner) landed(ctx context.Context, pod *corev1.Pod, planned string) {
	ref := metav1.GetControllerOf(pod)
	if ref != nil && ref.Kind == "DaemonSet" {
		return // room is kept for those
	}
	n, err := p.nodes.Get(pod.Spec.NodeName)
	if err != nil {
		return
	}
	p.mu.Lock()
	claim := p.byProvider[n.Spec.ProviderID]
	p.mu.Unlock()
	if claim == "" || claim == planned || planned == "" && ref != nil && p.ledger.sit(ref.UID, claim) {
		return
	}
	if p.ledger.intrude(claim) {
		p.Metrics.OffPlan.Inc()
		log.FromContext(ctx).V(1).Info("a pod landed on a node that was bought for others", "pod", pod.Namespace+"/"+pod.Name, "node", n.Name, "nodeClaim", claim)
	}
}

// onNode lets the pods of the node's claim go once the node is usable.
func (p *Provisioner) onNode(ctx context.Context, obj any, deleted bool) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	p.mu.Lock()
	claim := p.byProvider[n.Spec.ProviderID]
	p.mu.Unlock()
	switch {
	case claim == "":
		p.freed.node(n, deleted)
	case deleted:
		p.ledger.leave(claim)
	default:
		p.check(ctx, claim)
	}
}

// onClaim keeps track of claims and takes pods back from those that are gone.
func (p *Provisioner) onClaim(ctx context.Context, obj any, deleted bool) {
	c, ok := obj.(*karpv1.NodeClaim)
	if !ok {
		return
	}
	p.mu.Lock()
	delete(p.recent, c.Name)
	if deleted || c.Status.ProviderID != "" {
		p.forget(c.Name)
	}
	if c.Status.ProviderID != "" {
		if deleted {
			delete(p.byProvider, c.Status.ProviderID)
		} else {
			p.byProvider[c.Status.ProviderID] = c.Name
		}
	}
	p.mu.Unlock()
	if deleted || !c.DeletionTimestamp.IsZero() {
		p.ledger.leave(c.Name)
		p.lose(ctx, c.Name, "its NodeClaim is being deleted")
		return
	}
	p.check(ctx, c.Name)
}

// check releases the pods of a claim whose node is usable, and takes them back from a claim that is gone.
func (p *Provisioner) check(ctx context.Context, claim string) {
	if !p.ledger.holds(claim) {
		return
	}
	c := &karpv1.NodeClaim{}
	switch err := p.Kube.Get(ctx, types.NamespacedName{Name: claim}, c); {
	case apierrors.IsNotFound(err) && !p.isRecent(claim), err == nil && !c.DeletionTimestamp.IsZero():
		p.lose(ctx, claim, "its NodeClaim is gone") // it died before its pods were planned on it
		return
	case client.IgnoreNotFound(err) != nil:
		return
	}
	n := p.nodeFor(claim, c)
	if n == nil {
		return
	}
	p.ledger.join(claim, n.Name)
	admits := func(*corev1.Pod) bool { return true }
	if phase := view.Phase(c, n); phase == capacity.Launched {
		admits = func(pod *corev1.Pod) bool { return view.Admits(c, n, pod) }
	} else if phase != capacity.Usable { // nor is it while the cache does not show the claim's instance
		return
	}
	pods := p.ledger.usable(claim, n.Name, admits, p.Clock.Now())
	if len(pods) == 0 {
		return
	}
	for _, pod := range pods {
		p.Gate.Reserve(pod.UID, n.Name)
	}
	var uids []types.UID
	for _, pod := range p.ledger.together(pods) {
		uids = append(uids, pod.UID)
	}
	p.Gate.Release(uids...)
	log.FromContext(ctx).Info("node is usable", "node", n.Name, "nodeClaim", claim, "pods", len(pods))
}

// nodeOf finds the claim's Node by the name it is known to have.
func (p *Provisioner) nodeOf(c *karpv1.NodeClaim) *corev1.Node {
	name := c.Status.NodeName
	if name == "" {
		name = c.Annotations[launch.NodeNameAnnotation]
	}
	return p.node(name, c.Status.ProviderID)
}

// node returns the Node of that name, nil if there is none or it is another machine's.
func (p *Provisioner) node(name, providerID string) *corev1.Node {
	if name == "" {
		return nil
	}
	n, err := p.nodes.Get(name)
	if err != nil || n.Spec.ProviderID != providerID {
		return nil
	}
	return n
}

// nodeFor finds the Node of a claim whose instance the cache may not show yet.
func (p *Provisioner) nodeFor(claim string, c *karpv1.NodeClaim) *corev1.Node {
	if c.Status.ProviderID != "" {
		return p.nodeOf(c)
	}
	p.mu.Lock()
	i := p.found[claim]
	p.mu.Unlock()
	return p.node(i.nodeName, i.providerID)
}

// Found takes a claim's instance before its status tells it. From then on its node is kept for the claim's pods: the node
// opens as soon as the controller has read that status, and the scheduler's cache may show that before this process sees the claim.
func (p *Provisioner) Found(claim, providerID, nodeName string) {
	if !p.ledger.holds(claim) {
		return
	}
	p.mu.Lock()
	p.found[claim] = instance{providerID, nodeName}
	p.byProvider[providerID] = claim
	p.mu.Unlock()
	p.check(logr.NewContext(context.Background(), p.Logger), claim)
}

// forgetFound drops the instances of claims that no pod waits for any more.
func (p *Provisioner) forgetFound() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for claim := range p.found {
		if !p.ledger.holds(claim) {
			p.forget(claim)
		}
	}
}

// forget drops a claim's instance as it was told by the launch. p.mu is held.
func (p *Provisioner) forget(claim string) {
	if i, ok := p.found[claim]; ok {
		delete(p.byProvider, i.providerID)
		delete(p.found, claim)
	}
}

// lose puts the pods of a claim that will have no node back into the batch.
func (p *Provisioner) lose(ctx context.Context, claim, why string) {
	pods := p.ledger.lost(claim)
	if len(pods) == 0 {
		return
	}
	log.FromContext(ctx).Info("claim is lost, its pods are planned again", "nodeClaim", claim, "pods", len(pods), "reason", why)
	p.batch.Requeue(pods...)
}

// report takes the outcome of a launch: names go to the pods, failures put them back.
func (p *Provisioner) report(o launch.Outcome) {
	ctx := logr.NewContext(context.Background(), p.Logger)
	switch {
	case o.Err == nil:
		if o.NodeName != "" {
			p.nominate(ctx, o.NodeName, p.ledger.named(o.Claim.Name, o.NodeName))
		}
	case o.Retrying:
		pods := p.ledger.podsOf(o.Claim.Name)
		// Their node has no name for longer than their condition can be withheld: the claim's stands in for it, so that no other
		// autoscaler takes them for pods that nobody provides for.
		p.nominate(ctx, o.Claim.Name, pods)
		for _, pod := range pods {
			p.Events.Eventf(pod, o.Claim, corev1.EventTypeWarning, "LaunchDelayed", "Provisioning", "NodeClaim %q cannot be launched yet: %s", o.Claim.Name, o.Err)
		}
	default:
		pods := p.ledger.podsOf(o.Claim.Name)
		for _, pod := range pods {
			p.Events.Eventf(pod, o.Claim, corev1.EventTypeWarning, "LaunchFailed", "Provisioning", "NodeClaim %q was not launched, another node is looked for: %s", o.Claim.Name, o.Err)
		}
		p.discard(ctx, o.Claim)
		p.lose(ctx, o.Claim.Name, o.Err.Error())
	}
}

// discard deletes a claim that was not launched, however long the API server is away: a claim that stayed would be
// launched for nobody.
func (p *Provisioner) discard(ctx context.Context, c *karpv1.NodeClaim) {
	for pause := writeFirst; ; pause = min(2*pause, firstRetry) {
		err := client.IgnoreNotFound(p.Kube.Delete(ctx, c))
		if err == nil {
			return
		}
		p.Logger.Error(err, "deleting a NodeClaim that was not launched", "nodeClaim", c.Name)
		timer := p.Clock.NewTimer(pause)
		select {
		case <-p.ended:
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

// nominate tells the pods' node to the gate and to everybody who reads the pods.
func (p *Provisioner) nominate(ctx context.Context, node string, pods []*corev1.Pod) {
	for _, pod := range pods {
		if p.serves(pod) || p.Gate.Reserve(pod.UID, node) {
			continue
		}
		if err := p.Nominator.Nominate(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod.UID, node); err != nil {
			log.FromContext(ctx).Info("nominated node could not be written", "pod", client.ObjectKeyFromObject(pod), "node", node, "reason", err.Error())
		}
	}
}
