// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package native writes the rules that need no other object as policies of the
// API server: ValidatingAdmissionPolicies (Kubernetes 1.30) and
// MutatingAdmissionPolicies (1.36), in manifests/policies. They work whether or
// not slipway-webhook runs.
//
// Rules about the same objects share a policy, and each group has one policy a
// mode ([v1alpha1.Enforce], Warn, Audit), because actions belong to bindings and
// modes to rules. A validation asks for its rule's mode first, which is that of
// package rules unless the WorkloadPolicy, the parameter, or the namespace's label
// says otherwise. The API server evaluates each policy with every WorkloadPolicy
// there is; it acts with the one that holds for the namespace and is silent with
// the others, which it tells from the policy's own status, where slipway-webhook
// writes what there is to know of the others. The policy "slipway-builtin", which
// comes with these files, stands for "none". Only the guard against deletions has
// no parameter and always holds.
//
// The same exceptions hold as in [rules.Registry.Judge]: an excepted object is let
// through, an update of an object that was wrong before is only warned about, and
// pods that controllers make are never refused.
//
// Import level 5: imports rules and the API packages.
package native

//go:generate go run ./gen -out ../../manifests/policies
