// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity_test

import (
	"strings"
	"testing"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

func TestParseEvenness(t *testing.T) {
	for value, want := range map[string]float64{"0": 0, "1": 0.01, "2.5%": 0.025, "100%": 1} {
		if got, err := capacity.ParseEvenness(value); err != nil || got != want {
			t.Errorf("ParseEvenness(%q) = %v, %v, want %v", value, got, err, want)
		}
	}
	for _, value := range []string{"", "much", "-1", "101", "NaN", "Inf", "1%%"} {
		_, err := capacity.ParseEvenness(value)
		if err == nil || !strings.Contains(err.Error(), capacity.EvennessAnnotation) {
			t.Errorf("ParseEvenness(%q): error %v does not name the annotation", value, err)
		}
	}
}
