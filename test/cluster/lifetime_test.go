// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/test/cluster"
)

// callerEnv makes the test binary be a caller that starts a cluster below the folder it names and then hangs.
const callerEnv = "SLIPWAY_TEST_CALLER"

func runCaller() {
	c, err := cluster.New(context.Background(), cluster.Options{TempDir: os.Getenv(callerEnv)})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(c.Dir())
	for _, pid := range c.PIDs() {
		fmt.Println(pid)
	}
	fmt.Println("ready")
	select {}
}

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
	if runtime.GOOS != "linux" {
		t.Skip("parent-death signals are Linux's; elsewhere the next start sweeps")
	}
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

// TestClusterOutlivesItsStartersThread ends the thread that called New: a parent-death signal bound to it would
// take the cluster along.
func TestClusterOutlivesItsStartersThread(t *testing.T) {
	type result struct {
		c   *cluster.Cluster
		err error
	}
	started := make(chan result)
	temp := t.TempDir()
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		c, err := cluster.New(context.Background(), cluster.Options{TempDir: temp})
		started <- result{c, err}
	}()
	r := <-started
	if r.err != nil {
		t.Fatal(r.err)
	}
	client := clientFor(t, r.c.Config())
	for range 20 { // over a few scheduler rounds of the runtime
		runtime.Gosched()
		if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
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

func TestWaitNamesDeadProcess(t *testing.T) {
	c := cluster.Start(t, cluster.Options{TempDir: t.TempDir()})
	for name, pid := range c.PIDs() {
		if name == "etcd" {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "etcd ended") {
		t.Errorf("Wait: %v, want an error that names etcd", err)
	}
}

func TestFailedStartSaysWhyAndLeavesNothing(t *testing.T) {
	temp := t.TempDir()
	_, err := cluster.New(t.Context(), cluster.Options{TempDir: temp, APIServerArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("got %v, want the API server's own words", err)
	}
	left, err := filepath.Glob(filepath.Join(temp, "*", "cluster-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
