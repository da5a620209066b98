// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"os"
	"time"
)

// lockPoll is how often a taken lock is tried again.
const lockPoll = 50 * time.Millisecond

// lock waits for the lock on path. onWait, if not nil, is called once if it has to wait.
func lock(ctx context.Context, path string, onWait func()) (*os.File, error) {
	for {
		f, err := tryLock(path)
		if f != nil || err != nil {
			return f, err
		}
		if onWait != nil {
			onWait()
			onWait = nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lockPoll):
		}
	}
}
