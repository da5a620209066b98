// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-sh/slipway/test/cluster"
)

// alive tells whether a process runs. A dead one that nobody has reaped yet does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

func gone(pids []int) func(context.Context) string {
	return func(context.Context) string {
		for _, pid := range pids {
			if alive(pid) {
				return fmt.Sprintf("process %d runs", pid)
			}
		}
		return ""
	}
}

func pidsOf(c *cluster.Cluster) []int {
	var pids []int
	for _, pid := range c.PIDs() {
		pids = append(pids, pid)
	}
	return pids
}

// TestKilledCallerLeavesNothing kills a caller in a way it can't notice, and looks at what is left of its cluster.
func TestKilledCallerLeavesNothing(t *testing.T) {
	temp := t.TempDir()
	caller := exec.Command(os.Args[0])
	caller.Env = append(os.Environ(), callerEnv+"="+temp)
	caller.Stderr = os.Stderr
	out, err := caller.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := caller.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = caller.Process.Kill() })
	var lines []string
	for s := bufio.NewScanner(out); s.Scan() && s.Text() != "ready"; {
		lines = append(lines, s.Text())
	}
	if len(lines) != 4 {
		t.Fatalf("caller said %q, want its folder and three processes", lines)
	}
	dir := lines[0]
	var pids []int
	for _, line := range lines[1:] {
		pid, err := strconv.Atoi(line)
		if err != nil || !alive(pid) {
			t.Fatalf("process %q is not running: %v", line, err)
		}
		pids = append(pids, pid)
	}

	if err := caller.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = caller.Wait() // "signal: killed"
	eventually(t, "the processes to end", gone(pids))
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("data folder: %v, want it left to the sweep", err)
	}

	cluster.Start(t, cluster.Options{TempDir: temp})
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("data folder %q of the killed caller: %v, want it swept", dir, err)
	}
}

// onThreadThatEnds runs f on a thread that ends after it.
func onThreadThatEnds(f func()) {
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if syscall.Gettid() != os.Getpid() {
			f()
			return
		}
		// The main thread never ends. While this goroutine occupies it, another gets another.
		onThreadThatEnds(f)
		runtime.Gosched()
		runtime.UnlockOSThread()
	}()
}

// TestClusterOutlivesItsStartersThread ends the thread that called New: a parent-death signal bound to it would
// take the cluster along.
func TestClusterOutlivesItsStartersThread(t *testing.T) {
	type result struct {
		c      *cluster.Cluster
		err    error
		thread string
	}
	started := make(chan result, 1) // the starter ends without waiting for anybody
	temp := t.TempDir()
	onThreadThatEnds(func() {
		c, err := cluster.New(context.Background(), cluster.Options{TempDir: temp})
		started <- result{c, err, fmt.Sprintf("/proc/self/task/%d", syscall.Gettid())}
	})
	r := <-started
	if r.err != nil {
		t.Fatal(r.err)
	}
	eventually(t, "the starter's thread to end", func(context.Context) string {
		if _, err := os.Stat(r.thread); err == nil {
			return "it is there"
		}
		return ""
	})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := r.c.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the thread's end: %v, want all processes running", err)
	}

	pids, dir := pidsOf(r.c), r.c.Dir()
	if err := r.c.Stop(); err != nil {
		t.Fatal(err)
	}
	if answer := gone(pids)(t.Context()); answer != "" {
		t.Errorf("after Stop: %s", answer)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("after Stop: data folder: %v, want it removed", err)
	}
	if err := r.c.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
	if err := r.c.Wait(t.Context()); err != nil {
		t.Errorf("Wait after Stop: %v", err)
	}
}
