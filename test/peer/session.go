// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"flag"
	"fmt"
	"time"
)

// Flags registers a flag for each binary.
func (o *Options) Flags(fs *flag.FlagSet) {
	fs.StringVar(&o.Karpenter, "karpenter", "bin/compare/karpenter", "the stock Karpenter controller")
	fs.StringVar(&o.Scheduler, "scheduler", "bin/compare/kube-scheduler", "the stock kube-scheduler")
}

// Teller says what happens on standard output, with the seconds since it was made.
type Teller struct{ began time.Time }

// NewTeller returns a teller that counts from now.
func NewTeller() Teller { return Teller{began: time.Now()} }

// Say prints a line.
func (t Teller) Say(line string) { fmt.Printf("%6.1f s  %s\n", time.Since(t.began).Seconds(), line) }

// Step is a part of a session: something to do, or to wait for.
type Step struct {
	What string
	Do   func(context.Context) error
}

// Play does one step after the other, each within the limit, and calls done after each. The error names the step that failed.
func Play(ctx context.Context, limit time.Duration, steps []Step, done func(Step)) error {
	for _, step := range steps {
		limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %v", limit))
		err := step.Do(limited)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", step.What, err)
		}
		done(step)
	}
	return nil
}
