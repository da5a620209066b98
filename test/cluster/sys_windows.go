// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import "syscall"

// childAttr is never used: tryLock fails first.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
