// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Command is a program to run beside a cluster.
type Command struct {
	// Name is how errors and the log file call it.
	Name string
	// Path of the program, Args without the program's name, and Env in addition to the caller's environment.
	Path string
	Args []string
	Env  []string
	// Log is where its output goes; by default <cluster folder>/<name>.log.
	Log string
}

// Process is a program that runs beside a cluster and ends with it, whatever happens to the caller.
type Process struct{ p *process }

// Run starts a program of the caller's under the same rules as the cluster's own: it is killed by Stop, and by the
// kernel when the caller dies. Unlike theirs, its end does not end the cluster.
func (c *Cluster) Run(cmd Command) (*Process, error) {
	log := cmd.Log
	if log == "" {
		log = filepath.Join(c.dir.path, cmd.Name+".log")
	}
	program := exec.Command(cmd.Path, cmd.Args...)
	program.Dir = c.dir.path
	program.Env = append(os.Environ(), cmd.Env...)
	p, err := startProcess(c.thread, cmd.Name, log, program)
	if err != nil {
		return nil, err
	}
	return &Process{p: p}, c.adopt(p)
}

// Kill ends the process as kill -9 does and waits until it is gone.
func (p *Process) Kill() error { return p.p.kill() }

// Terminate asks the process to end, as the kubelet does (SIGTERM), and does not wait.
func (p *Process) Terminate() error {
	if err := p.p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("terminating %s: %w", p.p.name, err)
	}
	return nil
}

// Pause stops the process where it is, Resume lets it go on (SIGSTOP, SIGCONT). Connections stay open meanwhile.
func (p *Process) Pause() error { return p.p.stop() }

// Resume ends a Pause.
func (p *Process) Resume() error { return p.p.resume() }

// ExitCode is what the process has ended with, -1 for a signal. Call it after Done is closed.
func (p *Process) ExitCode() int { return p.p.cmd.ProcessState.ExitCode() }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.p.done }

// Err says how the process ended, quoting the end of its log. Call it after Done is closed.
func (p *Process) Err() error { return p.p.died() }

// Log opens what the process has written so far.
func (p *Process) Log() (io.ReadCloser, error) { return os.Open(p.p.log) }
