// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package provisioner turns pods that fit nowhere into NodeClaims, and brings the
// pods and their nodes together when the nodes are there.
//
// A [Provisioner] is the sink of the scheduler plugin (Offer) and one loop (Run)
// whose steps are numbered in step.go:
//
//	batch → view → plan → verify → claim → launch
//
// It owns the ledger: which pod waits, is planned on which claim, or cannot be
// placed. The ledger is a cache, not a truth: what must survive a restart (the
// claims, which pods each was bought for) is written to the API server before
// EC2 is asked for anything, and the ledger is rebuilt from there.
//
// Beside the loop, parked pods get room that comes free elsewhere (freed.go), pod
// groups are kept together (group.go), the pods of other schedulers are served
// (serve.go), capacity buffers are kept up (buffers.go), and a sweeper proves that no pod is forgotten (forgotten.go).
//
// It never calls EC2 (package launch does), never binds a pod (the scheduler
// does) and never blocks a scheduling cycle: Offer is a map look-up.
//
// Import level 5: imports capacity, plan, view, demand, launch; not scheduler.
package provisioner
