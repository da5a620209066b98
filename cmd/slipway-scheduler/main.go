// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command slipway-scheduler is a kube-scheduler that buys the EC2 node when none
// fits: the stock scheduler with the Slipway plugin and, behind it, the
// provisioner that plans, claims and launches.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics of the stock scheduler
	_ "k8s.io/component-base/metrics/prometheus/version"  // build_info
)

func main() { os.Exit(cli.Run(newCommand())) }
