// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-sh/slipway/test/bed"
)

// interruptions is how fast replacements are bought.
type interruptions struct {
	requested []time.Duration // notice visible → CreateFleet received
	calls     int
}

func (i *interruptions) measure(context.Context, int) error { return nil }

func (i *interruptions) print() {
	fmt.Printf("interruptions: %d replacements requested with %d CreateFleet calls, p50 %.1f ms\n", len(i.requested), i.calls, ms(bed.Quantile(i.requested, 0.5)))
}
