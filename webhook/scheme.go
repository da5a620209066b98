// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

// NewScheme knows the kinds that are not part of Kubernetes' own API.
func NewScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for group, kinds := range map[string][]runtime.Object{
		"karpenter.sh":      {&karpv1.NodePool{}, &karpv1.NodePoolList{}, &karpv1.NodeClaim{}, &karpv1.NodeClaimList{}},
		"karpenter.k8s.aws": {&v1.EC2NodeClass{}, &v1.EC2NodeClassList{}},
	} {
		gv := schema.GroupVersion{Group: group, Version: "v1"}
		s.AddKnownTypes(gv, kinds...)
		metav1.AddToGroupVersion(s, gv)
	}
	return s, v1alpha1.AddToScheme(s)
}
