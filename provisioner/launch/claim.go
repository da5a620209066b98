// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/plan"
)

// NewClaim is the claim for a planned launch, as Karpenter would write it: the pool's template with the launch's requirements,
// under a random name. The node class's hash is added by the launch, which knows the class the instance really came from.
func NewClaim(np *karpv1.NodePool, l plan.Launch) *karpv1.NodeClaim {
	c := FromTemplate(np)
	c.Spec.Requirements, c.Spec.Resources.Requests = nil, l.Requests.List()
	for _, key := range l.Requirements.Keys() {
		r := l.Requirements[key]
		if vs := r.Values(); r.Finite() && len(vs) == 1 && l.Pool.Catalog != nil && !l.Pool.Catalog.Defines(key) {
			c.Labels[key] = vs[0] // a custom label whose value the pods chose
		}
		for _, s := range r.Selectors() {
			q := karpv1.NodeSelectorRequirementWithMinValues{Key: s.Key, Operator: s.Operator, Values: s.Values}
			if r.MinValues > 0 {
				q.MinValues = new(r.MinValues)
			}
			c.Spec.Requirements = append(c.Spec.Requirements, q)
		}
	}
	return c
}

// FromTemplate is a claim that asks for what its pool's template does and nothing more, under a random name.
func FromTemplate(np *karpv1.NodePool) *karpv1.NodeClaim {
	t := np.Spec.Template
	c := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:        fmt.Sprintf("%s-%s", np.Name, rand.String(5)),
			Labels:      map[string]string{},
			Annotations: map[string]string{},
			Finalizers:  []string{karpv1.TerminationFinalizer},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "karpenter.sh/v1", Kind: "NodePool", Name: np.Name, UID: np.UID, BlockOwnerDeletion: new(true),
			}},
		},
		Spec: karpv1.NodeClaimSpec{
			Taints:                 t.Spec.Taints,
			StartupTaints:          t.Spec.StartupTaints,
			NodeClassRef:           t.Spec.NodeClassRef,
			TerminationGracePeriod: t.Spec.TerminationGracePeriod,
			ExpireAfter:            t.Spec.ExpireAfter,
			Requirements:           t.Spec.Requirements,
		},
	}
	maps.Copy(c.Annotations, t.Annotations)
	c.Annotations[karpv1.NodePoolHashAnnotationKey] = np.Hash()
	c.Annotations[karpv1.NodePoolHashVersionAnnotationKey] = karpv1.NodePoolHashVersion
	maps.Copy(c.Labels, t.Labels)
	c.Labels[karpv1.NodePoolLabelKey] = np.Name
	c.Labels[karpv1.NodeClassLabelKey(t.Spec.NodeClassRef.GroupKind())] = t.Spec.NodeClassRef.Name
	return c
}
