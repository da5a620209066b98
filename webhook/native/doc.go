// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package native writes the rules that need no other object as policies of the
// API server: ValidatingAdmissionPolicies (Kubernetes 1.30) and
// MutatingAdmissionPolicies (1.36), in manifests/policies. They work whether or
// not slipway-webhook runs.
//
// Rules about the same objects share a policy, and each group has one policy a
// mode ([v1alpha1.Enforce], Warn, Audit), because actions belong to bindings and
// modes to rules. All policies have one parameter, a ConfigMap, in which
// slipway-webhook writes the WorkloadPolicies in a form made for expressions
// ([rules.NativeData]): the API server evaluates a policy once for each
// parameter. The expressions find the WorkloadPolicy that holds for the object's
// namespace; a validation asks first what the mode of its rule is there. Only the
// guard against deletions has no parameter and always holds.
//
// Evaluation is what counts: pods are created often. The API server evaluates all
// conditions, validations and messages of a policy that matches, so one condition
// rules out the pods that are in order whichever policy holds, and what most objects
// are not comes first in a validation.
//
// The same exceptions hold as in [rules.Registry.Judge]: an excepted object is let
// through, an update of an object that was wrong before is only warned about, and
// pods that controllers make are never refused.
//
// Import level 5: imports rules and the API packages.
package native

//go:generate go run ./gen -out ../../manifests/policies
