// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulate is the judge: it tells whether the scheduler would put a pod
// on a node that does not exist yet.
//
// A [Judge] runs the PreFilter and Filter plugins of a live scheduler profile,
// out-of-tree ones included, in a framework of its own. The framework looks at an
// overlay: the cluster as it is, plus the hypothetical nodes of a plan with the
// pods they will have, the volumes those pods take, and the CSINodes the new nodes
// will have. Verify places the plan's pods one after the other, so each pod is
// judged with the earlier ones in place, as it will be when it is bound.
//
// The package owns no plugin's logic and takes no decision: a rejection carries
// the plugin's own words. It never writes to the cluster, never touches the live
// scheduler's cache or snapshot, and therefore may run on any goroutine. Pods the
// scheduler has assumed but not yet bound reach it with the watch, milliseconds
// later. Scheduler extenders are not asked.
//
// Import level 4.
package simulate
