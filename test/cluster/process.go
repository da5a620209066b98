// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// logTail is how much of a dead process's log an error quotes, in bytes.
const logTail = 3000

// thread is an OS thread that starts processes. The parent-death signal of a child is sent when the thread that
// forked it ends, which for an ordinary goroutine's thread can be any time; this one ends only with the caller's process or
// with stop.
type thread struct {
	work  chan func()
	ended chan struct{}
}

func newThread() *thread {
	t := &thread{work: make(chan func()), ended: make(chan struct{})}
	go func() {
		// Never unlocked: when this function returns, the runtime ends the thread, and the kernel what it started.
		runtime.LockOSThread()
		for {
			select {
			case f := <-t.work:
				f()
			case <-t.ended:
				return
			}
		}
	}()
	return t
}

// start starts cmd on the thread. It fails with errStopped after stop.
func (t *thread) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = childAttr()
	result := make(chan error, 1)
	select {
	case t.work <- func() { result <- cmd.Start() }:
		return <-result
	case <-t.ended:
		return errStopped
	}
}

// stop ends the thread, once.
func (t *thread) stop() { close(t.ended) }

// process is one running component or program.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
}

// startProcess starts cmd on the thread with its output appended to the file log.
func startProcess(t *thread, name, log string, cmd *exec.Cmd) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening log of %s: %w", name, err)
	}
	defer out.Close() // the child has its own copy
	cmd.Stdout, cmd.Stderr = out, out
	if err := t.start(cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(p.done)
	}()
	return p, nil
}

// kill ends the process and waits until it is gone. Nothing it holds is worth an orderly end.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// died is the error of a process that has ended, with the end of its log.
func (p *process) died() error {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Errorf("%s ended (%s); its log is unreadable: %w", p.name, p.cmd.ProcessState, err)
	}
	if len(b) > logTail {
		b = b[len(b)-logTail:]
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			b = b[i+1:]
		}
	}
	return fmt.Errorf("%s ended (%s); end of its log:\n%s", p.name, p.cmd.ProcessState, strings.TrimSpace(string(b)))
}
