// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// readWithin is how long the first lists of a cluster may take.
const readWithin = 30 * time.Second

// Watch keeps a World up until ctx ends. It returns when the cluster has been read; its error is the first one of the API server,
// for instance that people may not list a kind.
func Watch(ctx context.Context, config *rest.Config) (*World, error) {
	w := NewWorld()
	kube, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return nil, fmt.Errorf("reading the cluster: %w", err)
	}
	// An informer tries for ever what it may not do; asked once, the API server says so.
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.NodeList{}, &karpv1.NodeClaimList{}, &karpv1.NodePoolList{}} {
		if err := kube.List(ctx, list, client.Limit(1)); err != nil {
			return nil, fmt.Errorf("reading the cluster: %w", err)
		}
	}
	c, err := cache.New(config, cache.Options{Scheme: scheme.Scheme, DefaultTransform: bare})
	if err != nil {
		return nil, fmt.Errorf("reading the cluster: %w", err)
	}
	handlers := map[client.Object]toolscache.ResourceEventHandler{
		&corev1.Pod{}:       handler(w.Pod, func(p *corev1.Pod) { w.NoPod(p.UID) }),
		&corev1.Node{}:      handler(w.Node, func(n *corev1.Node) { w.NoNode(n.Name) }),
		&karpv1.NodeClaim{}: handler(w.Claim, func(c *karpv1.NodeClaim) { w.NoClaim(c.Name) }),
		&karpv1.NodePool{}:  handler(w.Pool, func(p *karpv1.NodePool) { w.NoPool(p.Name) }),
	}
	var registered []toolscache.ResourceEventHandlerRegistration
	for object, h := range handlers {
		informer, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("reading the cluster: %w", err)
		}
		r, err := informer.AddEventHandler(h)
		if err != nil {
			return nil, fmt.Errorf("reading the cluster: %w", err)
		}
		registered = append(registered, r)
	}
	go func() { _ = c.Start(ctx) }() // it ends with ctx, and has nothing else to say
	limited, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	for _, r := range registered {
		if !toolscache.WaitForCacheSync(limited.Done(), r.HasSynced) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, errors.New("reading the cluster: pods, nodes, NodeClaims and NodePools could not be listed within " + readWithin.String())
		}
	}
	return w, nil
}

// handler calls set for what is there and gone for what is not any more.
func handler[T client.Object](set, gone func(T)) toolscache.ResourceEventHandler {
	put := func(o any) {
		if x, ok := o.(T); ok {
			set(x)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: put, UpdateFunc: func(_, o any) { put(o) },
		DeleteFunc: func(o any) {
			if t, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = t.Obj
			}
			if x, ok := o.(T); ok {
				gone(x)
			}
		},
	}
}

// bare takes away what is not shown, so that large clusters fit in little memory.
func bare(o any) (any, error) {
	object, ok := o.(client.Object)
	if !ok {
		return o, nil
	}
	object.SetManagedFields(nil)
	switch o := object.(type) {
	case *corev1.Pod:
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion, CreationTimestamp: o.CreationTimestamp},
			Spec:       corev1.PodSpec{NodeName: o.Spec.NodeName, Containers: asked(o.Spec.Containers), InitContainers: asked(o.Spec.InitContainers), Overhead: o.Spec.Overhead, Resources: o.Spec.Resources},
			Status:     corev1.PodStatus{Phase: o.Status.Phase, NominatedNodeName: o.Status.NominatedNodeName, Conditions: o.Status.Conditions},
		}, nil
	case *corev1.Node:
		o.Status.Images = nil
	}
	return object, nil
}

// asked are containers with what they ask for and nothing else.
func asked(all []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, len(all))
	for i := range all {
		out[i] = corev1.Container{Name: all[i].Name, Resources: all[i].Resources, RestartPolicy: all[i].RestartPolicy}
	}
	return out
}
