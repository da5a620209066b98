// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// teller prints lines with the time since its start.
type teller struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

func newTeller(out io.Writer) *teller { return &teller{out: out, start: time.Now()} }

func (t *teller) linef(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	if line == "" {
		fmt.Fprintln(t.out)
		return
	}
	fmt.Fprintf(t.out, "%8.3fs  %s\n", time.Since(t.start).Seconds(), line)
}

// every bounds how often pod counts are printed.
const every = 250 * time.Millisecond

// narrate tells what EC2 is asked for, what joins and how many pods have a node, until ctx ends.
func (t *teller) narrate(ctx context.Context, b *bed.Bed, watch *bed.Observer) {
	go t.narratePods(ctx, b, watch)
	for e := range b.Emulator.Subscribe(ctx) {
		switch e.Type {
		case ec2emu.Joined:
			t.linef("node %s joined (%s, %s)", e.NodeName, e.InstanceType, e.Zone)
		case ec2emu.NotJoined:
			t.linef("instance %s does not join: %s", e.InstanceID, e.Reason)
		default: // nothing that a reader waits for
		}
	}
}

// narrateFleets tells of CreateFleet requests not told of yet.
func (t *teller) narrateFleets(b *bed.Bed, told map[string]bool) {
	kind := map[string]string{}
	for _, i := range b.Emulator.Instances() {
		kind[i.ID] = fmt.Sprintf("%s %s %s", i.InstanceType, i.Zone, i.CapacityType)
	}
	for _, r := range b.Emulator.Requests() {
		if r.Action != "CreateFleet" || told[r.ID] || len(r.Instances) == 0 {
			continue
		}
		told[r.ID] = true
		t.linef("CreateFleet arrived at %.3fs: %s → %s", r.At.Sub(t.start).Seconds(), plural(len(r.Instances), "instance"), kind[r.Instances[0]])
	}
}

func (t *teller) narratePods(ctx context.Context, b *bed.Bed, watch *bed.Observer) {
	told := map[string]bool{}
	var last [3]int
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
		t.narrateFleets(b, told)
		pods, bound, running := watch.Counts("")
		if now := [3]int{pods, bound, running}; now != last {
			last = now
			t.linef("pods: %d created, %d bound, %d running", pods, bound, running)
		}
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
