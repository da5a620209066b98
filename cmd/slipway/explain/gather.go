// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner"
)

// Facts are the objects a story is told from. Those that do not exist (any more) are nil.
type Facts struct {
	Pod    *corev1.Pod
	Node   *corev1.Node
	Claims []*karpv1.NodeClaim // of a pod: those bought for it; of a node: its own; of a pool: all
	Pool   *karpv1.NodePool
	// On are the pods on the node.
	On     []*corev1.Pod
	Events []*corev1.Event
}

// Kinds are what can be explained, each with its short names.
func Kinds() map[string]string {
	return map[string]string{
		"pod": "pod", "pods": "pod", "po": "pod",
		"node": "node", "nodes": "node", "no": "node",
		"nodeclaim": "nodeclaim", "nodeclaims": "nodeclaim",
		"nodepool": "nodepool", "nodepools": "nodepool",
	}
}

// Gather reads what the story of the object is told from. kind is one of the values of Kinds. The error of an object that
// does not exist names it.
func Gather(ctx context.Context, kube client.Reader, kind string, name types.NamespacedName) (*Facts, error) {
	f := &Facts{}
	var err error
	switch kind {
	case "pod":
		err = f.pod(ctx, kube, name)
	case "node":
		err = f.node(ctx, kube, name.Name)
	case "nodeclaim":
		err = f.claim(ctx, kube, name.Name)
	case "nodepool":
		err = f.pool(ctx, kube, name.Name)
	default:
		err = fmt.Errorf("cannot explain a %q", kind)
	}
	if err != nil {
		return nil, err
	}
	return f, f.events(ctx, kube)
}

func (f *Facts) pod(ctx context.Context, kube client.Reader, name types.NamespacedName) error {
	f.Pod = &corev1.Pod{}
	if err := kube.Get(ctx, name, f.Pod); err != nil {
		return fmt.Errorf("reading pod %s: %w", name, err)
	}
	var all karpv1.NodeClaimList
	if err := kube.List(ctx, &all); err != nil {
		return fmt.Errorf("listing NodeClaims: %w", err)
	}
	for i := range all.Items {
		c := &all.Items[i]
		its := slices.Contains(strings.Split(c.Annotations[provisioner.PodsAnnotation], ","), name.String())
		if its || (f.Pod.Spec.NodeName != "" && c.Status.NodeName == f.Pod.Spec.NodeName) {
			f.Claims = append(f.Claims, c)
		}
	}
	if f.Pod.Spec.NodeName == "" {
		return nil
	}
	node := &corev1.Node{}
	if ok, err := found(kube.Get(ctx, types.NamespacedName{Name: f.Pod.Spec.NodeName}, node)); err != nil {
		return fmt.Errorf("reading node %q: %w", f.Pod.Spec.NodeName, err)
	} else if ok {
		f.Node = node
	}
	return nil
}

func (f *Facts) node(ctx context.Context, kube client.Reader, name string) error {
	f.Node = &corev1.Node{}
	if err := kube.Get(ctx, types.NamespacedName{Name: name}, f.Node); err != nil {
		return fmt.Errorf("reading node %q: %w", name, err)
	}
	var all karpv1.NodeClaimList
	if err := kube.List(ctx, &all); err != nil {
		return fmt.Errorf("listing NodeClaims: %w", err)
	}
	for i := range all.Items {
		if c := &all.Items[i]; c.Status.ProviderID != "" && c.Status.ProviderID == f.Node.Spec.ProviderID {
			f.Claims = append(f.Claims, c)
		}
	}
	return f.podsOn(ctx, kube)
}

func (f *Facts) claim(ctx context.Context, kube client.Reader, name string) error {
	c := &karpv1.NodeClaim{}
	if err := kube.Get(ctx, types.NamespacedName{Name: name}, c); err != nil {
		return fmt.Errorf("reading NodeClaim %q: %w", name, err)
	}
	f.Claims = []*karpv1.NodeClaim{c}
	if c.Status.NodeName == "" {
		return nil
	}
	node := &corev1.Node{}
	if ok, err := found(kube.Get(ctx, types.NamespacedName{Name: c.Status.NodeName}, node)); err != nil {
		return fmt.Errorf("reading node %q: %w", c.Status.NodeName, err)
	} else if ok {
		f.Node = node
	}
	return f.podsOn(ctx, kube)
}

func (f *Facts) pool(ctx context.Context, kube client.Reader, name string) error {
	f.Pool = &karpv1.NodePool{}
	if err := kube.Get(ctx, types.NamespacedName{Name: name}, f.Pool); err != nil {
		return fmt.Errorf("reading NodePool %q: %w", name, err)
	}
	var claims karpv1.NodeClaimList
	if err := kube.List(ctx, &claims, client.MatchingLabels{karpv1.NodePoolLabelKey: name}); err != nil {
		return fmt.Errorf("listing NodeClaims: %w", err)
	}
	for i := range claims.Items {
		f.Claims = append(f.Claims, &claims.Items[i])
	}
	return nil
}

func (f *Facts) podsOn(ctx context.Context, kube client.Reader) error {
	if f.Node == nil {
		return nil
	}
	var pods corev1.PodList
	if err := kube.List(ctx, &pods, client.MatchingFields{"spec.nodeName": f.Node.Name}); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		f.On = append(f.On, &pods.Items[i])
	}
	return nil
}

// events reads the events of the objects the story is about; those of a pool's claims are left to their own stories.
func (f *Facts) events(ctx context.Context, kube client.Reader) error {
	type regarding struct{ kind, namespace, name string }
	var list []regarding
	if f.Pod != nil {
		list = append(list, regarding{"Pod", f.Pod.Namespace, f.Pod.Name})
	}
	if f.Node != nil {
		list = append(list, regarding{"Node", "", f.Node.Name})
	}
	if f.Pool != nil {
		list = append(list, regarding{"NodePool", "", f.Pool.Name})
	} else {
		for _, c := range f.Claims {
			list = append(list, regarding{"NodeClaim", "", c.Name})
		}
	}
	for _, r := range list {
		var events corev1.EventList
		fields := client.MatchingFields{"involvedObject.kind": r.kind, "involvedObject.name": r.name}
		// Events of objects without a namespace are in "default".
		if err := kube.List(ctx, &events, client.InNamespace(r.namespace), fields); err != nil {
			return fmt.Errorf("listing events of %s %q: %w", r.kind, r.name, err)
		}
		for i := range events.Items {
			f.Events = append(f.Events, &events.Items[i])
		}
	}
	return nil
}

// found tells an object that is there from one that is not.
func found(err error) (bool, error) {
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
