// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package launch turns NodeClaims into EC2 instances.
//
// A [Launcher] launches every NodeClaim that has no status.providerID, whoever
// wrote it. The provisioner hands its own claims over with [Launcher.Launch],
// in the same process and without a watch in between; all others are found by
// [Launcher.Run]. Equal claims (one [LaunchGroupAnnotation]) share one
// CreateFleet call. A launch has six steps:
//
//  1. class: the claim's EC2NodeClass, which has to be Ready, and its catalogue
//  2. offerings: the cheapest that satisfy the claim and that EC2 is not known
//     to be out of (choose)
//  3. subnets: in each zone the one with most free addresses ([Subnets])
//  4. fleet: one CreateFleet call of type instant
//  5. hand out: instances to claims, shortages to memory, the rest to the next
//     round of the same launch, which asks for other offerings at once: after a
//     lack of capacity, a used-up quota (everything that counts against it is left
//     alone), a missing spot role, or repeated server errors
//  6. status: the instance's facts into the claim, one patch of metadata and
//     one of status, then [Reporter.Report]
//
// # Never two instances for one claim
//
// Everything that must survive a crash is in EC2 and in the claim. The launch
// id is the claim's UID, or the group's id when equal claims share a call. It is
// the client token of the first attempt (later ones append -2, -3, …), and a tag
// ([ec2.TagLaunch]) that is part of the launch itself. A launcher that finds a
// claim it did not create looks for instances with the tag first and then
// repeats the attempts from the first with the same tokens, which EC2 answers with
// what it did before or, if the parameters have changed since, with a
// conflict; a conflict is settled by looking for the tag again. An attempt
// number is used up only by an answer, so an unused token means that there is
// no instance of it. Instances of a group that has lost claims since are left to
// the orphan collector of package claim.
//
// # Reservations
//
// A call asks for one reservation or none, and for no more than [Slots] counts
// free places in it: the other claims of the group go on in the next attempt. Its
// launch template names the reservation and is made when it is first needed. All
// other instances stay out of open reservations, as Karpenter's do.
//
// # What the machine is told, and what it is not
//
// Launch templates are made when pools and classes turn ready, one for each (class,
// image, pool shape, market) ([Templates]); the launch computes a name. One that comes
// before its templates waits for the cheapest offering's and uses the others later. So the user data
// carries only what all nodes of a pool have in common: the pool's own labels,
// the nodepool label, its taints, its startup taints, karpenter.sh/unregistered
// and karpenter.sh/do-not-sync-taints (because the kubelet has set all the
// taints already, an agent may remove a startup taint before registration),
// and the images that nodes of the pool pull while they boot: those of the pods its
// latest claims were bought for ([ImagesAnnotation]). A change of images makes new
// templates, at most every five minutes; until they exist the old ones serve.
// Labels that differ from claim to claim (capacity type, zone, a chosen value
// of a custom label) are written to the Node at registration by package claim,
// before the unregistered taint goes, so no pod sees the node without them.
//
// The package never decides which claims there should be, never deletes one and
// never terminates an instance. Nothing is paused globally: a claim, class or
// pool that fails waits alone.
//
// Import level 4: imports capacity, ec2 and the API packages; wired by the
// scheduler's command.
package launch
