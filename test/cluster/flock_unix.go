// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// tryLock opens path, creating it if need be, and locks it. It returns nil and no error if another open file
// holds the lock. The lock ends when the file is closed or its process ends, however it ends.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening lock: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("locking %q: %w", path, err)
}
