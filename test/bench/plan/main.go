// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command plan measures provisioner/plan: how fast, how cheap, how large.
package main

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-sh/slipway/provisioner/plan"
)

func typesUID(s string) types.UID { return types.UID(s) }

func main() {
	for _, n := range []int{1, 100, 1000} {
		in := peerInput(n, 1)
		start := time.Now()
		r := plan.Solve(in)
		took := time.Since(start)
		price := 0.0
		for i := range r.Launches {
			price += r.Launches[i].Price()
		}
		fmt.Printf("peer %d: %v launches %d unplaced %d price %.2f\n", n, took, len(r.Launches), len(r.Unplaced), price)
	}
}
