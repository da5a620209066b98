// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import "syscall"

// childAttr makes the kernel kill the child when the thread that started it ends (see thread), and keeps a
// terminal's interrupt away from it, so that the caller decides the order in which things end.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
