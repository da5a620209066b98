// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"testing"
)

func TestExponent(t *testing.T) {
	for want, value := range map[float64]func(nodes float64) float64{
		0:   func(float64) float64 { return 7 },
		1:   func(n float64) float64 { return 0.3 * n },
		0.5: math.Sqrt,
		2:   func(n float64) float64 { return n * n / 1000 },
	} {
		at := []stage{{nodes: 500}, {nodes: 1000}, {nodes: 2000}, {nodes: 5000}}
		if got := exponent(at, func(s *stage) float64 { return value(float64(s.nodes)) }); math.Abs(got-want) > 1e-9 {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}
