// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package cluster

import "syscall"

// childAttr keeps a terminal's interrupt away from the child. There is no parent-death signal here: Stop, or the
// sweep of the next start, ends the child.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
