// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook serves admission: it makes pods provisionable when they are
// created, and says of workloads, NodePools and node classes what will not work
// while whoever applies them is still there.
//
// What is wrong with an object is package rules' business. This package decodes
// reviews, knows the cluster ([State], built from informer caches away from the
// request path), turns verdicts into answers, and serves them over HTTPS.
//
// # It must never be why a pod cannot be created
//
// Everything is failurePolicy Ignore with short time-outs, and [Handler] fails
// open by itself too: a panic, a passed deadline, a cold cache, an object that is
// too large or cannot be read all answer "allowed", with a warning where somebody
// can do something about it. One mutating and one validating hook a resource,
// because mutating hooks run one after the other and of several refusals only the
// first is shown. Handlers read memory only and never write anything.
//
// Requests are filled in on pods, on CREATE, and nothing else is ever changed: no
// template, no custom resource, nothing on update. Patches add or replace fields
// that the pod does not have; a second pass finds nothing to do.
//
// schedulerName is set by a MutatingAdmissionPolicy in manifests/policies and not
// here, so that it does not depend on this process; an option of the handler is
// for API servers that do not have them (before 1.36).
//
// Import level 5: imports rules, view, plan and capacity.
package webhook
