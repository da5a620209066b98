// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rules holds everything admission knows about manifests: what is wrong
// with one, why that matters, how to put it right, and which requests a pod gets
// that asks for none.
//
// One registry, [All], lists the rules; the webhook, the controller's conditions,
// slipway lint and docs/reference/admission.md are made from it. Families have a
// file each:
//
//	R  requests.go    requests and limits        S  schedule.go   scheduler, placement, feasibility
//	D  disrupt.go     do-not-disrupt and grace   N  nodepool.go   NodePools
//	B  budgets.go     PodDisruptionBudgets       C  nodeclass.go  EC2NodeClasses
//	G  guard.go       Slipway's own objects      K  claim.go      NodeClaims
//
// A rule is a pure function from a [Subject] (one object, decoded) and [Facts]
// (what is known of the cluster; a nil function is "not known") to [Finding]
// values. What a finding leads to is decided in one place, [Judge]: mode of the
// rule, policy, namespace, exceptions, and the cases in which nothing is refused
// (the value was there before; the pod replaces one that ran).
//
// [Defaults] fills in requests. Admission, look-ahead and the consolidation
// simulator call the same function, so a replacement pod is predicted exactly.
//
// The package never talks to a cluster, reads no clock (Facts.Now is given) and
// never fails: an object that cannot be understood has no findings.
//
// Import level 3: imports the API packages and capacity.
package rules
