// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/provisioner/demand"
	"github.com/slipway-sh/slipway/webhook/predict"
)

// newPredictor makes what foretells the pods that admission makes, nil if slipway-webhook is not installed. It follows the
// policies of a cache that is not started yet.
func newPredictor(ctx context.Context, d dependencies, objects cache.Cache) (*predict.Predictor, error) {
	if d.options.admissionNamespace == "" {
		return nil, nil //nolint:nilnil // nothing to foretell is no error
	}
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		return nil, fmt.Errorf("registering WorkloadPolicy: %w", err)
	}
	informer, err := objects.GetInformer(ctx, &v1alpha1.WorkloadPolicy{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching WorkloadPolicies (--admission-namespace says that slipway-webhook is installed): %w", err)
	}
	known := &policies{byName: map[string]*v1alpha1.WorkloadPolicy{}}
	if _, err := informer.AddEventHandler(known.handler()); err != nil {
		return nil, fmt.Errorf("watching WorkloadPolicies: %w", err)
	}
	core := d.config.InformerFactory.Core().V1()
	owners := &demand.Owners{Pods: core.Pods().Informer().GetIndexer()}
	return predict.New(predict.Options{
		Policies: known.list, Namespaces: core.Namespaces().Lister(), LimitRanges: core.LimitRanges().Lister(),
		Siblings:  func(controller types.UID) []*corev1.Pod { return owners.Of(controller) },
		Namespace: d.options.admissionNamespace, Clock: clock.RealClock{},
	}), nil
}

// policies are the WorkloadPolicies as events have shown them.
type policies struct {
	mu     sync.RWMutex
	byName map[string]*v1alpha1.WorkloadPolicy
	sorted []*v1alpha1.WorkloadPolicy
}

func (p *policies) list() []*v1alpha1.WorkloadPolicy {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.sorted
}

func (p *policies) handler() toolscache.ResourceEventHandler {
	change := func(obj any, there bool) {
		if d, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = d.Obj
		}
		policy, ok := obj.(*v1alpha1.WorkloadPolicy)
		if !ok {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.byName, policy.Name)
		if there {
			p.byName[policy.Name] = policy
		}
		p.sorted = slices.SortedFunc(maps.Values(p.byName), func(a, b *v1alpha1.WorkloadPolicy) int { return cmp.Compare(a.Name, b.Name) })
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { change(o, true) },
		UpdateFunc: func(_, o any) { change(o, true) },
		DeleteFunc: func(o any) { change(o, false) },
	}
}
