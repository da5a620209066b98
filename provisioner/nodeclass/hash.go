// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// stamp is a hash under the version of its rule, with the annotations that hold the two.
type stamp struct{ hashKey, versionKey, hash, version string }

// restamp gives claims that were stamped under another version of the hash rule the hash of today, because hashes
// of different versions say nothing about each other. A claim that has been found drifted stays so: its old hash
// is kept, and with it the difference. (Karpenter, designs/drift-hash-versioning.md.)
func restamp(ctx context.Context, kube client.Client, claims []karpv1.NodeClaim, s stamp) error {
	var errs []error
	for i := range claims {
		claim := &claims[i]
		if claim.Annotations[s.versionKey] == s.version {
			continue
		}
		stored := claim.DeepCopy()
		set := map[string]string{s.versionKey: s.version}
		if !drifted(claim) {
			set[s.hashKey] = s.hash
		}
		setAnnotations(claim, set)
		if err := kube.Patch(ctx, claim, client.MergeFrom(stored)); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("stamping node claim %q: %w", claim.Name, err))
		}
	}
	return errors.Join(errs...)
}

func drifted(claim *karpv1.NodeClaim) bool {
	for _, c := range claim.Status.Conditions {
		if c.Type == karpv1.ConditionTypeDrifted {
			return true
		}
	}
	return false
}

func setAnnotations(o client.Object, set map[string]string) {
	all := o.GetAnnotations()
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, set)
	o.SetAnnotations(all)
}

// claimsOf lists the claims of a managed class, as copies.
func claimsOf(ctx context.Context, kube client.Client, class string) ([]karpv1.NodeClaim, error) {
	var list karpv1.NodeClaimList
	if err := kube.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing the claims of node class %q: %w", class, err)
	}
	var out []karpv1.NodeClaim
	for _, c := range list.Items {
		if capacity.Managed(c.Spec.NodeClassRef) && c.Spec.NodeClassRef.Name == class {
			out = append(out, c)
		}
	}
	return out, nil
}
