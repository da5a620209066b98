// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command slipway-controller looks after nodes once they are launched: it
// resolves EC2NodeClasses, registers, initializes and ends NodeClaims, reacts to
// what AWS announces about instances, and collects what was left behind.
//
// It needs the cluster's name, a kubeconfig or in-cluster credentials, and AWS
// credentials, region and, for other endpoints than AWS's own, the SDK's
// environment (AWS_REGION, AWS_ENDPOINT_URL …). Flags have Karpenter's names and
// environment variables wherever Karpenter has them. One replica at a time acts:
// the one that holds Karpenter's own leader lease, so that Slipway and Karpenter
// never manage the same node classes at once.
//
// The command owns wiring, flags and environment only. Import level 6.
package main
