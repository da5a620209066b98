// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// Run adopts claims that nobody handed over (written by others, or by a process that has died since) until ctx ends. It
// returns an error if the informers cannot be had. Only the leader may run it.
func (l *Launcher) Run(ctx context.Context, informers cache.Informers) error {
	queue := workqueue.NewTypedDelayingQueue[string]()
	defer queue.ShutDown()
	watches := []struct {
		object  client.Object
		handler toolscache.ResourceEventHandler
	}{
		{&karpv1.NodeClaim{}, l.claimHandler(ctx, queue)},
		{&v1.EC2NodeClass{}, l.changeHandler()},
		{&karpv1.NodePool{}, l.changeHandler()},
	}
	for _, w := range watches {
		informer, err := informers.GetInformer(ctx, w.object)
		if err != nil {
			return fmt.Errorf("watching %T: %w", w.object, err)
		}
		handle, err := informer.AddEventHandler(w.handler)
		if err != nil {
			return fmt.Errorf("watching %T: %w", w.object, err)
		}
		defer func() { _ = informer.RemoveEventHandler(handle) }()
		if !toolscache.WaitForCacheSync(ctx.Done(), handle.HasSynced) {
			return ctx.Err()
		}
	}
	go func() {
		<-ctx.Done()
		queue.ShutDown()
	}()
	for {
		names, open := drain(queue)
		if !open {
			return nil
		}
		later, err := l.adopt(ctx, names)
		if err != nil {
			log.FromContext(ctx).Info("adopting claims will be retried", "claims", len(names), "reason", err.Error())
			later = names
		}
		for _, name := range later {
			queue.AddAfter(name, l.AdoptAfter)
		}
	}
}

// drain takes everything that is in the queue, waiting for the first.
func drain(queue workqueue.TypedDelayingInterface[string]) (names []string, open bool) {
	for {
		name, shutdown := queue.Get()
		if shutdown {
			return nil, false
		}
		queue.Done(name)
		names = append(names, name)
		if queue.Len() == 0 {
			return names, true
		}
	}
}

// claimHandler keeps the launcher's memory in step with the cluster and queues claims without an instance. A young claim
// is left to its creator for a moment, so that the process that wrote it launches it without a look at EC2 first; those that
// appear while this process leads and that no plan of the scheduler made are nobody else's to launch, and are at once.
func (l *Launcher) claimHandler(ctx context.Context, queue workqueue.TypedDelayingInterface[string]) toolscache.ResourceEventHandler {
	seen := func(obj any, appeared bool) {
		c, ok := obj.(*karpv1.NodeClaim)
		if !ok || !capacity.Managed(c.Spec.NodeClassRef) {
			return
		}
		l.avoid(c)
		switch {
		case c.Status.ProviderID != "":
			l.forget(c.UID)
		case c.DeletionTimestamp != nil:
			l.abandon(c.UID)
		case l.known(c.UID):
		default:
			if appeared && c.Annotations[capacity.PlannedAnnotation] == "" && !l.foreign(c) {
				l.arrivals.add(ctx, c)
			}
			queue.AddAfter(c.Name, l.adoptIn(c.CreationTimestamp.Time))
		}
	}
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { seen(obj, !initial) },
		UpdateFunc: func(_, obj any) { seen(obj, false) },
		DeleteFunc: func(obj any) {
			if tomb, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = tomb.Obj
			}
			if c, ok := obj.(*karpv1.NodeClaim); ok {
				l.forget(c.UID)
			}
		},
	}
}

// avoidFor is how old an announcement may be to count: the time a shortage is remembered at first.
const avoidFor = 2 * time.Minute

// avoid remembers the offerings that the claim says EC2 is short of.
func (l *Launcher) avoid(c *karpv1.NodeClaim) {
	keys := capacity.ParseOfferingKeys(c.Annotations[capacity.AvoidAnnotation])
	if len(keys) == 0 {
		return
	}
	at := c.CreationTimestamp.Time
	if c.DeletionTimestamp != nil {
		at = c.DeletionTimestamp.Time
	}
	if l.Clock.Since(at) < avoidFor {
		l.Shortages.Mark(keys...)
	}
}

// adoptIn is how long to leave a claim created at the instant alone. Creation times are whole seconds.
func (l *Launcher) adoptIn(created time.Time) time.Duration {
	if age := l.Clock.Since(created); age > l.AdoptAfter+time.Second {
		return 0
	}
	return l.AdoptAfter
}

// changeHandler wakes launches that wait for a class or pool, and the making of templates. The status of a pool, which counts
// its nodes and changes all the time, wakes nobody.
func (l *Launcher) changeHandler() toolscache.ResourceEventHandler {
	changed := func(any) {
		l.Templates.trigger()
		l.Changed()
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: changed,
		UpdateFunc: func(before, after any) {
			old, ok1 := before.(client.Object)
			now, ok2 := after.(client.Object)
			if !ok1 || !ok2 || old.GetResourceVersion() == now.GetResourceVersion() {
				return
			}
			if _, pool := after.(*karpv1.NodePool); pool && old.GetGeneration() == now.GetGeneration() {
				return
			}
			changed(after)
		},
		DeleteFunc: changed,
	}
}

// adopt starts the launch of named claims that this process did not create. Every instance that exists with one of their
// launch ids is found with one question, before anything is sent. Claims that are somebody else's for now are returned.
func (l *Launcher) adopt(ctx context.Context, names []string) (later []string, err error) {
	var all karpv1.NodeClaimList
	if err := l.Kube.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	wanted := map[string]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	ids := map[string]bool{}
	for i := range all.Items {
		switch c := &all.Items[i]; {
		case !wanted[c.Name] || l.known(c.UID):
		case c.Status.ProviderID == "" && l.foreign(c):
			later = append(later, c.Name)
		default:
			ids[launchID(c)] = true
		}
	}
	// Whole groups are adopted at once, so that a call that was interrupted can be repeated with the same count.
	var claims []*karpv1.NodeClaim
	before := map[string]launched{}
	for i := range all.Items {
		c := &all.Items[i]
		id := launchID(c)
		if !capacity.Managed(c.Spec.NodeClassRef) || !ids[id] {
			continue
		}
		if instance := instanceID(c.Status.ProviderID); instance != "" {
			b := before[id]
			if b.owned == nil {
				b.owned = map[string]bool{}
			}
			b.owned[instance] = true
			b.total++
			before[id] = b
			continue
		}
		claims = append(claims, c.DeepCopy())
	}
	adopted := groups(claims, false)
	if len(adopted) == 0 {
		return later, nil
	}
	values := make([]string, len(adopted))
	for i, g := range adopted {
		values[i] = g.id
	}
	instances, err := l.Cloud.DescribeByTag(ctx, ec2.TagLaunch, values)
	if err != nil {
		return nil, fmt.Errorf("looking for the instances of %d launches: %w", len(values), err)
	}
	for _, i := range instances {
		b := before[i.Tags[ec2.TagLaunch]]
		b.instances = append(b.instances, i)
		before[i.Tags[ec2.TagLaunch]] = b
	}
	now := l.Clock.Now()
	for _, g := range adopted {
		l.start(ctx, g, now, before[g.id])
	}
	return later, nil
}

// instanceID is the last part of a provider id, "" if there is none.
func instanceID(providerID string) string {
	for i := len(providerID) - 1; i >= 0; i-- {
		if providerID[i] == '/' {
			return providerID[i+1:]
		}
	}
	return ""
}
