// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// memory is an API server as far as a launcher needs one, in a few maps: what is measured against it is about EC2 only.
type memory struct {
	client.Client // what is not here is not called

	mu      sync.Mutex
	version int
	claims  map[string]*karpv1.NodeClaim
	pools   map[string]*karpv1.NodePool
	class   *v1.EC2NodeClass
}

func newMemory(class *v1.EC2NodeClass, pools ...*karpv1.NodePool) *memory {
	m := &memory{claims: map[string]*karpv1.NodeClaim{}, pools: map[string]*karpv1.NodePool{}, class: class}
	for _, p := range pools {
		m.pools[p.Name] = p
	}
	return m
}

// Get implements client.Reader.
func (m *memory) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch o := o.(type) {
	case *v1.EC2NodeClass:
		m.class.DeepCopyInto(o)
		return nil
	case *karpv1.NodePool:
		if p := m.pools[key.Name]; p != nil {
			p.DeepCopyInto(o)
			return nil
		}
	case *karpv1.NodeClaim:
		if c := m.claims[key.Name]; c != nil {
			c.DeepCopyInto(o)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// List implements client.Reader.
func (m *memory) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch list := list.(type) {
	case *v1.EC2NodeClassList:
		list.Items = append(list.Items, *m.class.DeepCopy())
	case *karpv1.NodePoolList:
		for _, p := range m.pools {
			list.Items = append(list.Items, *p.DeepCopy())
		}
	default:
		return fmt.Errorf("listing %T is not part of the benchmark", list)
	}
	return nil
}

// Create implements client.Writer.
func (m *memory) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	return m.store(o)
}

// Patch implements client.Writer: the object is what it is to become.
func (m *memory) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return m.store(o)
}

func (m *memory) store(o client.Object) error {
	c, ok := o.(*karpv1.NodeClaim)
	if !ok {
		return fmt.Errorf("writing %T is not part of the benchmark", o)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version++
	c.ResourceVersion = strconv.Itoa(m.version)
	m.claims[c.Name] = c.DeepCopy()
	return nil
}

// Status implements client.StatusClient.
func (m *memory) Status() client.SubResourceWriter { return statusWriter{m: m} }

type statusWriter struct {
	client.SubResourceWriter
	m *memory
}

// Patch implements client.SubResourceWriter.
func (s statusWriter) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.m.store(o)
}
