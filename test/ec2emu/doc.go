// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ec2emu is an AWS account on a loopback port: EC2, SQS, SSM, EKS, IAM,
// STS and Pricing on their real wire protocols, so that stock SDK clients work
// against it by endpoint alone.
//
// About 1,370 real instance types with their zones and prices are for sale, on
// demand, as spot, and from capacity reservations and blocks. Launched instances
// boot after a delay drawn from a table of measured boot times, read their own
// user data, and join a Kubelet as the Node it asks for; with bad user data they
// never do, and say why on their console. What EventBridge would say of them is
// on an SQS queue. Stock-outs, reclaims, errors, throttling, partial fleets, lost
// answers and latency can be turned on at run time, and every request and event
// can be read. All draws follow from a seed: the same requests in the same order
// get the same answers.
//
//	emu, err := ec2emu.Start(ctx, ec2emu.Options{Seed: 1, ClusterName: "demo", BootScale: 0.05})
//	defer emu.Close()
//	emu.SetKubelet(kubelet)                         // machines register their Nodes there
//	emu.SetStock(ec2emu.Pool{CapacityType: "spot"}, 0) // no spot capacity anywhere
//	emu.Inject(ec2emu.Fault{Action: "CreateFleet", Code: "RequestLimitExceeded", Count: 3})
//	emu.InterruptSpot(id)                           // the notice is on the queue, the end two minutes away
//	client := ec2.NewFromConfig(emu.AWSConfig())
//	...
//	for event := range emu.Subscribe(ctx) { ... }   // Launched, Running, Joined, …
//
// Everything that can be turned on is also served over HTTP beside the services
// (AdminPath, AdminHelp); `make emulator` runs the package as a program. The
// commands contract and stock hold it against moto and against the stock
// Karpenter controller.
//
// A process that takes its configuration from the environment needs only
// AWS_ENDPOINT_URL=emu.URL(), a region and any credentials.
//
// What it never does: check signatures or permissions, keep anything on disk,
// talk to anyone but its clients and its Kubelet. Unknown actions, parameters and
// filters, and members that would change what is modelled but don't here, are
// refused with AWS's own errors; members without effect on the model (monitoring,
// metadata options) are kept and answered. Time is Options.Clock's, but for the
// few milliseconds that long answers are held back (see settleTime). One VPC,
// IPv4 only, one queue, one version a launch template. Import level 6 (test).
package ec2emu
