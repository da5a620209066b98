// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package interruption reacts to what AWS announces about instances.
//
//   - [Consumer] reads the SQS queue that EventBridge rules fill: spot
//     interruption warnings, rebalance recommendations, scheduled changes (AWS
//     Health), state changes, interruptions of capacity reservations. The
//     messages, kinds, events and metrics are Karpenter's, so its queue and
//     rules work unchanged.
//   - [Poller] asks EC2 for failing status checks and scheduled events, which
//     reaches clusters without a queue.
//   - [BlockWatcher] looks when capacity blocks end: nothing says so in time.
//
// The reaction has three steps, in this order:
//
//  1. replacements are bought: NodeClaims like the interrupted ones, sized for
//     the pods that have to move, are written and launched by the scheduler's
//     process, while the old nodes still run. Notices that come close together
//     are answered together: the pods of nodes that one launch can replace are
//     packed onto few nodes of one size, which share a launch group, and so one
//     CreateFleet call. The interrupted offerings go along as an annotation
//     ([capacity.AvoidAnnotation]), so that they are not bought again.
//  2. events are written on claim and node
//  3. the interrupted claim is deleted, with annotations that say so, when EC2
//     takes the instance, and which replacements its pods are to wait for; package
//     claim takes its node out of service, drains it and ends the instance. In a
//     storm of notices this waits until all replacements are written.
//
// No replacement is written if no pod has to move, if the node never joined
// (its pods are planned again when the claim goes), if the NodePool's limits have
// no room for both nodes, or if the pool is gone; then the pods become demand
// when they are evicted. A replacement says which claims it stands for: however
// often a notice is delivered, and whatever dies in between, it is found again.
//
// A message is deleted when its reaction is complete. One that cannot be
// understood is counted and dropped at its third delivery, one whose reaction fails
// at its tenth; until then SQS delivers it again. No message holds up another.
//
// The package never launches or terminates instances and never touches claims
// whose node class is of another provider. It knows nothing about prices.
//
// Import level 4: imports capacity, ec2 and the API packages; wired by the
// controller's command.
package interruption
