// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"slices"

	awsapis "github.com/aws/karpenter-provider-aws/pkg/apis"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// classKind is the kind of the node classes managed here.
const classKind = "EC2NodeClass"

// managedGroups are the API groups whose EC2NodeClass is managed here.
func managedGroups() []string { return []string{awsapis.Group} }

// Managed reports whether a pool or claim with this reference is Slipway's to look after.
func Managed(ref *karpv1.NodeClassReference) bool {
	if ref == nil || ref.Kind != classKind {
		return false
	}
	return slices.Contains(managedGroups(), ref.Group)
}
