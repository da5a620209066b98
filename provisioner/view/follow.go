// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Informer is the part of an informer that Follow needs.
type Informer interface {
	AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
}

// Informers are the watches a builder follows. CSINodes may be nil if the source has none.
type Informers struct {
	Pods, Nodes, Claims, Namespaces, CSINodes Informer
	// OnPod, OnNode and OnClaim, where they are set, get every event after the builder has taken note of it: whoever takes a
	// reservation or a recent claim out of what is pending because the cache shows the pod bound or the claim written must
	// not do so before the builder counts it.
	OnPod, OnNode, OnClaim cache.ResourceEventHandler
}

// Follow makes views cost what has changed since the last one. To be called once, before the first Build. Until the
// informers have handed over what they hold, views are built from lists.
func (b *Builder) Follow(in Informers) error {
	c := newCluster()
	var synced []cache.InformerSynced
	for _, w := range []struct {
		what string
		on   Informer
		do   cache.ResourceEventHandler
	}{
		{"Pods", in.Pods, noting(c.pod, in.OnPod)},
		{"Nodes", in.Nodes, noting(c.node, in.OnNode)},
		{"NodeClaims", in.Claims, noting(c.claim, in.OnClaim)},
		{"Namespaces", in.Namespaces, noting(func(old, now *corev1.Namespace) {
			if old == nil || now == nil || !maps.Equal(old.Labels, now.Labels) {
				c.namespaces()
			}
		}, nil)},
		{"CSINodes", in.CSINodes, noting(func(old, now *storagev1.CSINode) {
			if now == nil {
				now = old
			}
			c.attachLimits(now.Name)
		}, nil)},
	} {
		if w.on == nil {
			continue
		}
		r, err := w.on.AddEventHandler(w.do)
		if err != nil {
			return fmt.Errorf("following %s: %w", w.what, err)
		}
		synced = append(synced, r.HasSynced)
	}
	b.followed = c
	b.synced = func() bool {
		return !slices.ContainsFunc(synced, func(done cache.InformerSynced) bool { return !done() })
	}
	return nil
}

// noting hands an object's old and new state to note, nil for one that is not there, and then the event on.
func noting[T client.Object](note func(old, now T), then cache.ResourceEventHandler) cache.ResourceEventHandler {
	var none T
	typed := func(obj any) (T, bool) {
		if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = t.Obj
		}
		o, ok := obj.(T)
		return o, ok
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if o, ok := typed(obj); ok {
				note(none, o)
			}
			if then != nil {
				then.OnAdd(obj, initial)
			}
		},
		UpdateFunc: func(old, now any) {
			a, ok1 := typed(old)
			b, ok2 := typed(now)
			if ok1 && ok2 {
				note(a, b)
			}
			if then != nil {
				then.OnUpdate(old, now)
			}
		},
		DeleteFunc: func(obj any) {
			if o, ok := typed(obj); ok {
				note(o, none)
			}
			if then != nil {
				then.OnDelete(obj)
			}
		},
	}
}
