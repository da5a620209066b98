// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ec2 is the only speaker of the AWS SDK in the product: what EC2
// sells, what a node class resolves to, and how instances are bought,
// described and given back.
//
// It has four parts. [Client] wraps the calls: subnets, groups, images, the
// cluster, instance profiles, launch templates, fleets and instances. [Catalogs]
// keeps instance types, offerings and prices in immutable snapshots that its
// own loop refreshes, and turns them into the [capacity.Catalog] of a node
// class. [Shortages] remembers which offerings EC2 is out of, [Slots] how much
// room capacity reservations have. [UserData] writes what a booting machine reads.
//
// Every error of a call carries a [capacity.Kind] (see the table in
// errors.go); callers decide by kind and never by text. Readers of catalogues
// and shortages never wait for a network call, and no lock is held across one.
//
// The package never reads or writes Kubernetes objects, decides nothing about
// pods, and keeps no state that a restart would need: whatever must survive is
// in tags and names.
//
// Import level 3: imports provisioner/capacity and the API packages; imported by
// launch, claim, nodeclass and the commands.
package ec2

//go:generate go run ./gen
