// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"
	"time"
)

func TestImagesPulledAheadAreThereSooner(t *testing.T) {
	const each = 10 * time.Second
	boot := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var s imageStore
	at := func(after time.Duration, images ...string) time.Duration {
		return s.pull(images, boot.Add(after), each).Sub(boot)
	}
	at(0, "web", "proxy") // by user data, while the node becomes ready
	for _, step := range []struct {
		after  time.Duration
		images []string
		want   time.Duration
	}{
		{12 * time.Second, []string{"web"}, 12 * time.Second},                  // there already
		{12 * time.Second, []string{"web", "proxy"}, 20 * time.Second},         // under way
		{12 * time.Second, []string{"web", "late"}, 30 * time.Second},          // after what is under way
		{50 * time.Second, []string{"web", "proxy", "late"}, 50 * time.Second}, // all there
		{60 * time.Second, []string{"new"}, 70 * time.Second},
	} {
		if got := at(step.after, step.images...); got != step.want {
			t.Errorf("%v asked for at %s: there at %s, want %s", step.images, step.after, got, step.want)
		}
	}
	if got := (&imageStore{}).pull([]string{"web"}, boot, 0); !got.Equal(boot) {
		t.Errorf("images that take no time are there at %s", got)
	}
}
