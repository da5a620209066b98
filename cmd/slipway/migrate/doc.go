// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package migrate moves a cluster from Karpenter to Slipway and back, and says what
// keeps it from moving: `slipway migrate check|takeover|handback`.
//
//	Gather (reads) → Site → rules (pure) → Report → text or JSON
//	Move (steps, each looked at before it is done) → Takeover, Handback
//	GatherGroups → Groups (pure): what Cluster Autoscaler's node groups need first
//
// One process at a time owns the node classes of karpenter.k8s.aws: whoever holds
// Karpenter's leader lease. A move ends the one before the other takes the lease, and
// never in the middle of a launch: whoever began a NodeClaim gives it its instance.
// It scales Deployments, deletes NodeClaims that were left without an instance and
// writes nothing else; nodes, pools and hashes are the controllers' business.
//
// It never talks to AWS. Import level 6.
package migrate
