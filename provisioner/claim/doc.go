// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package claim takes a NodeClaim from its launch to its end, by Karpenter's
// contract (conditions and their reasons, labels, annotations, taints,
// finalizers, owner references), so that whatever watches Karpenter's NodeClaims
// works unchanged.
//
//   - [Reconciler] registers the Node of a launched claim (finalizer, owner
//     reference, the claim's labels, annotations and taints, then the
//     unregistered taint is taken off), initializes it when it is ready to take
//     pods, checks that it is what was promised, deletes claims that were not
//     launched, registered or initialized in time, and ends claims that are deleted.
//   - [NodeReconciler] deletes the claim of a Node that is deleted by hand, and
//     lets go of Nodes that have no claim any more.
//   - [Collector] ends instances that no claim stands for and claims whose
//     instance is gone.
//
// Nothing sleeps: claims and Nodes are watched, and only EC2, which cannot be,
// is asked again after a while. A reconcile writes the Node at most once
// for registration and once for initialization, and the claim's status at
// most once; every write that replaces a list carries the resourceVersion it is
// based on.
//
// Ending a claim is: taint the Node karpenter.sh/disrupted:NoSchedule, delete
// the Node object (its finalizer keeps it), let the [Drainer] take its pods off,
// wait until their volumes are detached (up to six minutes, or the deadline),
// terminate the instance, wait until EC2 says that it is gone, let go of Node and
// claim. What blocks a drain is in the condition Drained. Which claims end, and
// when, is decided elsewhere (package disruption, the interruption queue, people)
// except where a claim never becomes a working node.
//
// The package never creates a claim and never launches an instance. It never
// touches claims whose node class is of another provider, nor, while somebody
// else may act on the cluster, instances without Slipway's launch tag that have no
// claim: Karpenter ends its own.
//
// Import level 4: imports capacity, ec2, view and the API packages; wired by the
// controller's command.
package claim
