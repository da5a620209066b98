// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lint runs the rules of admission over manifests, before they are
// applied: in an editor, in a pipeline, or over a whole repository.
//
// [Read] splits files into documents, [Run] judges them. Rules about other objects
// look at the other documents, and at a cluster if there is one. Manifests of
// karpenter.sh/v1beta1, which API servers refuse before admission is asked, are
// explained change by change and converted ([Convert]).
//
// It never writes anything. Import level 5: imports rules and webhook.
package lint
