// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kinds that are Slipway's own. NodePool, NodeClaim
// and EC2NodeClass are Karpenter's and are imported from there.
//
// [WorkloadPolicy] says how pods of the namespaces it selects are made
// provisionable and which findings about them are shown, counted or refused.
//
// The package owns field names, defaults and schema rules; it decides nothing.
// zz_generated.deepcopy.go and manifests/crds are made from it by controller-gen
// (make generate), and a test keeps them in step.
//
// Import level 0: imports nothing of Slipway.
//
// +kubebuilder:object:generate=true
// +groupName=slipway.sh
package v1alpha1

//go:generate ../../hack/controller-gen.sh
