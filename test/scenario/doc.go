// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scenario runs the planner on cases written as text files: a cluster and
// the pods that want a place go in, the plan with its prices and reasons comes out.
//
// A file of testdata is a txtar archive. Its comment says what the case is about,
// what goes wrong elsewhere and what is right here. Then follow the sections of
// the first variant, and after each section "variant" those of another:
//
//	-- cluster --      manifests of pools, nodes, bound pods, daemonsets, volumes …
//	-- pods --         manifests of the pods that want a place, or their workloads
//	-- catalog --      what EC2 sells, if not testdata/catalog.txt
//	-- unavailable --  offerings EC2 is out of: type, zone, capacity type; * for any
//	-- plan --         what comes out
//	-- variant b --    what is different, in words; then its sections
//
// A variant takes over the sections it does not have. Objects in its cluster
// section are added to the first variant's, or replace those of the same name.
//
// Manifests are the ones users have, with defaults for what the case is not about:
// an apiVersion follows from the kind; a pool's class is "default", which exists
// and is ready; a Node has the size and labels of the type in its instance-type
// label, and a NodeClaim if it has a pool's label; a namespace exists if it is
// used. Workloads (Deployment, ReplicaSet, StatefulSet, Job) stand for their pods;
// with spec.nodeName in the template they are bound, or, if that is the name of a
// NodeClaim, planned for it.
//
//	go test ./test/scenario            compares
//	go test ./test/scenario -update    writes the plan sections anew: read the diff
//
// cases.txt lists the failures of others that Slipway must get right, each with the scenarios and the tests anywhere in the
// tree that show it; a test holds that they exist.
//
// Each plan is also shown to the judge, the scheduler's own filters, whose refusals
// are part of what comes out; there should be none. The package owns no product
// code and starts no processes. Import level 6 (test).
package scenario
