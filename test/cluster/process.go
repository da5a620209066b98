// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// logTail is how much of a dead process's log an error quotes, in bytes.
const logTail = 3000

// thread is an OS thread that starts processes. The parent-death signal of a child is sent when the thread that
// forked it ends, which for an ordinary goroutine's thread can be any time; this one ends only with the caller's process or
// with stop.
type thread struct {
	work chan func()
}

func newThread() *thread {
	t := &thread{work: make(chan func())}
	go func() {
		// Never unlocked: when this function returns, the runtime ends the thread, and the kernel what it started.
		runtime.LockOSThread()
		for f := range t.work {
			f()
		}
	}()
	return t
}

// start starts cmd on the thread.
func (t *thread) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = childAttr()
	result := make(chan error)
	t.work <- func() { result <- cmd.Start() }
	return <-result
}

func (t *thread) stop() { close(t.work) }

// process is one running component.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error // how it ended; read after done is closed
}

// startProcess starts a component with its output going to <dir>/<name>.log.
func startProcess(t *thread, bin, dir string, args []string) (*process, error) {
	p := &process{name: filepath.Base(bin), done: make(chan struct{})}
	p.log = filepath.Join(dir, p.name+".log")
	out, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("creating log of %s: %w", p.name, err)
	}
	defer out.Close() // the child has its own copy
	p.cmd = exec.Command(bin, args...)
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := t.start(p.cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
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

// died is the error of a process that ended on its own, with the end of its log.
func (p *process) died() error {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Errorf("%s ended (%v); its log is unreadable: %w", p.name, p.err, err)
	}
	if len(b) > logTail {
		b = b[len(b)-logTail:]
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			b = b[i+1:]
		}
	}
	return fmt.Errorf("%s ended (%v); end of its log:\n%s", p.name, p.err, strings.TrimSpace(string(b)))
}
