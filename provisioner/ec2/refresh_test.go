// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestKeepFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
		defer cancel()
		var at []time.Duration
		keepFresh(ctx, 12*time.Minute, func(context.Context) error {
			at = append(at, time.Since(begun))
			if n := len(at); n <= 3 || n == 6 { // three failures at first, one later
				return errors.New("down")
			}
			return nil
		})
		s, m := time.Second, time.Minute
		want := []time.Duration{0, s, 3 * s, 7 * s, 12*m + 7*s, 24*m + 7*s, 24*m + 8*s, 36*m + 8*s}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Errorf("refreshed at (-want +got):\n%s", diff)
		}
	})
}

func TestPausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		pause := retryFirst
		var gaps []time.Duration
		last := time.Now()
		keepFresh(ctx, time.Hour, func(context.Context) error {
			gaps = append(gaps, time.Since(last))
			last = time.Now()
			return errors.New("down for good")
		})
		for i, g := range gaps[1:] {
			if g != pause {
				t.Fatalf("pause %d = %s, want %s", i, g, pause)
			}
			pause = min(2*pause, retryMost)
		}
		if pause != retryMost {
			t.Errorf("pauses grew to %s, want %s", pause, retryMost)
		}
	})
}
