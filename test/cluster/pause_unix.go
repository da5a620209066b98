// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster

import (
	"fmt"
	"syscall"
)

func (p *process) stop() error { return p.signal(syscall.SIGSTOP) }

func (p *process) resume() error { return p.signal(syscall.SIGCONT) }

func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("sending %v to %s: %w", s, p.name, err)
	}
	return nil
}
