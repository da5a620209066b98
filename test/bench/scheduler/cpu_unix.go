// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"syscall"
	"time"
)

// spent is the processor time this process has used so far.
func spent() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
