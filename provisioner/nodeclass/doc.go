// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeclass keeps the status of node classes and node pools, by
// Karpenter's contract (conditions and their reasons, annotations, finalizer),
// so that dashboards, health checks and a running Karpenter's successor find what
// they expect.
//
//   - [ClassReconciler] resolves an EC2NodeClass: subnets, security groups, images,
//     instance profile, and whether its spec can be carried out. When a class is
//     deleted and its last NodeClaim gone, it deletes what was made for the class.
//   - [ProfileCollector] deletes instance profiles that no class, claim or instance uses
//     any more.
//   - [ObserveReconciler] writes what the nodes of a class turned out to have into an
//     annotation of the class, which the catalogue goes by.
//   - [PoolReconciler] says of a NodePool whether its spec is valid and its class
//     ready, and counts its nodes. A pool whose class is missing, being deleted or
//     not ready says so by name.
//
// A [Rulebook] adds what the rules of admission find, with the functions admission
// itself uses: a pool may have been applied while nothing was there to look at it.
//
// Both stamp the hash of the spec that drift is judged by; claims stamped under
// another hash version are stamped again, not compared.
//
// Each object is reconciled on its own, with its own backoff, and asks EC2 for
// its own: a class that fails never delays another. What fails while something
// resolved earlier is still good leaves it in use. A reconcile writes metadata and
// status at most once each.
//
// The package never launches or ends an instance and never writes a NodeClaim but
// for the hash annotations. Classes and pools of other providers are left alone.
//
// Import level 4: imports ec2, capacity, webhook/rules and the API packages; wired
// by the controller's command.
package nodeclass
