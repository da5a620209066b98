// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package disruption decides which nodes are taken away, and takes them away.
//
// A [Controller] runs in the scheduler's process, beside the planner and the judge
// (docs/adr/0015). One pass after the other it
//
//  1. observes: NodeClaims, Nodes, pods, NodePools and PodDisruptionBudgets become a [Snapshot]
//  2. notes on NodeClaims what follows from it (conditions Consolidatable and Drifted)
//  3. carries on commands that were begun, by this process or an earlier one
//  4. decides: [Decide] returns new [Command] values, in the order Expiry that is due,
//     Repair, Emptiness, StaticDrift, Drift, Expiry that is near, Underutilized, each
//     within what the budgets leave
//  5. starts them, all at once
//
// Decisions are pure functions of a Snapshot. They find where pods would go with
// plan.Solve on the view without the nodes to be taken away, so that a delete, a
// replacement and a move of M nodes onto N are one thing: what has to be bought for
// these pods, and whether that is less.
//
// # A command
//
// is a few nodes that go together and the nodes bought instead. It is carried out
// in steps, each of which leaves the next to whoever reads the API server:
//
//	record   annotation slipway.sh/disruption on each claim: id, reason, replacements
//	taint    karpenter.sh/disrupted:NoSchedule, condition DisruptionReason
//	look     live pods, budgets, blockers and the judge, now that no pod can come any more
//	replace  NodeClaims whose names follow from the command's id
//	wait     until every replacement is initialized
//	look     once more for pods that must not be disrupted
//	delete   the claims; draining and ending them is package claim's
//
// Whatever goes wrong before the last step takes the taint, the condition and the
// annotation off again, with an event that says why. Commands whose nodes are
// different ones run beside each other: nothing waits in line.
//
// # Budgets
//
// are counted by Karpenter's own function of the API package over what the API
// server shows: nodes that are being deleted, that belong to a command or that are not
// ready use a budget up, whoever has caused it.
//
// The package never evicts a pod, never launches or ends an instance and never
// decides where a pending pod goes. It writes NodeClaims only as replacements and
// for static pools.
//
// Import level 5: imports capacity, plan, launch, ec2 and the API packages; not
// scheduler, not provisioner: what it needs of them are interfaces of its own.
package disruption
