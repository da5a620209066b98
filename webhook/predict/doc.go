// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package predict foretells what admission makes of pods that do not exist yet: a
// daemonset's pod on a node to be bought, and the pod that will replace one that
// is to be evicted. It fills in requests with the functions slipway-webhook does.
//
// What the workload's other pods were given or ask for is read from those pods;
// what a VerticalPodAutoscaler recommends is not known here, so a workload whose
// first pod gets its requests from one is foretold with the next source. Look-ahead
// needs nothing of this: it plans copies of a pod that admission has seen.
//
// Import level 5: imports rules and the API packages.
package predict
