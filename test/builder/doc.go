// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package builder makes the objects tests are about, in one readable line each:
//
//	builder.Pod("web").CPU("500m").Memory("1Gi").ZoneSpread(1, map[string]string{"app": "web"}).Obj()
//
// There are two families. Pod, Node, Deployment, DaemonSet, NodePool, NodeClaim
// and EC2NodeClass make API objects as a manifest would hold them: with their
// TypeMeta, valid for the API server unless the test asks for something that is
// not, and without UID unless one is set, because the API server gives it.
// InstanceType, Catalog, CapacityPool, Class, PodsOf and CapacityNode make the
// values of package capacity, for tests that need no API object.
//
// A builder is a template: Obj returns a deep copy, so one builder makes any
// number of objects and may be refined between two of them. Quantities are
// written as in manifests. A malformed one panics, since the mistake is in the
// test that wrote it. Nothing is random and nothing reads the clock: conditions
// carry the fixed time [Epoch].
//
// The package never talks to a cluster, starts nothing and asserts nothing.
//
// Import level 6 (test): only tests and other test packages import it.
package builder
