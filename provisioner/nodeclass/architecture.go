// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"
	"fmt"
	"slices"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// checkArchitecture refuses a class whose images boot on none of the architectures its NodePools ask for: nothing could be
// launched for any of them. Where one pool of several has an image the class is good, and the others are told by rule N002.
func (r *ClassReconciler) checkArchitecture(ctx context.Context, class *v1.EC2NodeClass) (*verdict, error) {
	has, open, err := architectures(class)
	if err != nil || open {
		return nil, err
	}
	var pools karpv1.NodePoolList
	if err := r.Kube.List(ctx, &pools); err != nil {
		return nil, fmt.Errorf("listing the NodePools of EC2NodeClass %q: %w", class.Name, err)
	}
	first, asks := "", ""
	for i := range pools.Items {
		p := &pools.Items[i]
		if ref := p.Spec.Template.Spec.NodeClassRef; !capacity.Managed(ref) || ref.Name != class.Name || p.DeletionTimestamp != nil {
			continue
		}
		wanted, ok := asked(p)
		if !ok || slices.ContainsFunc(has, wanted.Has) {
			return nil, nil //nolint:nilnil // neither a verdict nor a failure
		}
		if first == "" || p.Name < first {
			first, asks = p.Name, wanted.String()
		}
	}
	if first == "" {
		return nil, nil //nolint:nilnil // neither a verdict nor a failure
	}
	return fails(reasonArchitecture, "spec.amiSelectorTerms: the images found boot on %q, and no NodePool of the class takes that (%q asks for %s); select images for what the pools ask, or change %s there",
		has, first, asks, corev1.LabelArchStable), nil
}

// architectures are those the class's images boot on; open says that one of them does not say, and so may boot on all.
func architectures(class *v1.EC2NodeClass) (has []string, open bool, err error) {
	for _, a := range class.Status.AMIs {
		reqs, err := capacity.FromSelectors(a.Requirements)
		if err != nil {
			return nil, false, fmt.Errorf("reading image %q of EC2NodeClass %q: %w", a.ID, class.Name, err)
		}
		q, ok := reqs[corev1.LabelArchStable]
		if !ok || !q.Finite() {
			return nil, true, nil
		}
		has = append(has, q.Values()...)
	}
	slices.Sort(has)
	return slices.Compact(has), len(has) == 0, nil
}

// asked is the architecture the pool asks for; false if it leaves it open, or does so in a way its own conditions tell of.
func asked(p *karpv1.NodePool) (capacity.Requirement, bool) {
	out, ok := capacity.Requirement{}, false
	add := func(q capacity.Requirement) {
		if ok {
			q = out.Intersect(q)
		}
		out, ok = q, true
	}
	if v := p.Spec.Template.Labels[corev1.LabelArchStable]; v != "" {
		add(capacity.In(corev1.LabelArchStable, v))
	}
	for _, r := range p.Spec.Template.Spec.Requirements {
		if capacity.CanonicalKey(r.Key) != corev1.LabelArchStable {
			continue
		}
		q, err := capacity.NewRequirement(r.Key, r.Operator, r.Values...)
		if err != nil {
			return capacity.Requirement{}, false
		}
		add(q)
	}
	return out, ok && !out.Impossible()
}

// classOfPool is the class a pool names, whose images have to go with it.
func classOfPool(_ context.Context, o client.Object) []reconcile.Request {
	pool, ok := o.(*karpv1.NodePool)
	if !ok || !capacity.Managed(pool.Spec.Template.Spec.NodeClassRef) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: pool.Spec.Template.Spec.NodeClassRef.Name}}}
}
