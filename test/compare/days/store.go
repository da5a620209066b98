// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"

	awsv1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
)

// store is the part of an API server that Karpenter's planner and its consolidation ask: pods by node, NodePools and NodeClaims. Of all other
// kinds there is nothing. Its objects are shared, as those of a cache are.
type store struct {
	client.Client // of nothing

	pools  []*karpv1.NodePool
	claims map[string]*karpv1.NodeClaim
	pods   map[string][]*corev1.Pod // by node, in the order of their arrival
}

// List implements client.Reader.
func (s *store) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	switch l := list.(type) {
	case *corev1.PodList:
		if o.FieldSelector == nil {
			return errors.New("listing pods: only those of a node can be listed")
		}
		node, ok := o.FieldSelector.RequiresExactMatch("spec.nodeName")
		if !ok {
			return errors.New("listing pods: only those of a node can be listed")
		}
		for _, p := range s.pods[node] {
			l.Items = append(l.Items, *p)
		}
		return nil
	case *karpv1.NodePoolList:
		for _, p := range s.pools {
			l.Items = append(l.Items, *p)
		}
		return nil
	case *karpv1.NodeClaimList:
		for _, c := range s.claims {
			l.Items = append(l.Items, *c)
		}
		return nil
	default:
		return s.Client.List(ctx, list, opts...)
	}
}

// put places a pod on a node.
func (s *store) put(p *corev1.Pod) { s.pods[p.Spec.NodeName] = append(s.pods[p.Spec.NodeName], p) }

// take takes a pod off its node.
func (s *store) take(p *corev1.Pod) {
	on := s.pods[p.Spec.NodeName]
	i := slices.Index(on, p)
	s.pods[p.Spec.NodeName] = slices.Delete(on, i, i+1)
}

// provider sells the types. Nothing is launched through it: what Karpenter plans is bought by the world.
type provider struct{ types []*cloudprovider.InstanceType }

var errPlayed = errors.New("nodes are bought by the world, not by the provider")

func (*provider) Create(context.Context, *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	return nil, errPlayed
}
func (*provider) Delete(context.Context, *karpv1.NodeClaim) error        { return errPlayed }
func (*provider) Get(context.Context, string) (*karpv1.NodeClaim, error) { return nil, errPlayed }
func (*provider) List(context.Context) ([]*karpv1.NodeClaim, error)      { return nil, errPlayed }
func (*provider) RepairPolicies() []cloudprovider.RepairPolicy           { return nil }
func (*provider) Name() string                                           { return "days" }
func (*provider) GetSupportedNodeClasses() []status.Object {
	return []status.Object{&awsv1.EC2NodeClass{}}
}

func (*provider) IsDrifted(context.Context, *karpv1.NodeClaim) (cloudprovider.DriftReason, error) {
	return "", nil
}

func (p *provider) GetInstanceTypes(context.Context, *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	return p.types, nil
}
