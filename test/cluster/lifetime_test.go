// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// TestEndsOfProcesses tells the end of a caller's program from that of a component.
func TestEndsOfProcesses(t *testing.T) {
	c := cluster.Start(t, cluster.Options{TempDir: t.TempDir()})
	script := cluster.Command{Name: "script", Path: "/bin/sh", Args: []string{"-c", "echo $GREETING; exit 3"}, Env: []string{"GREETING=hello"}}
	program, err := c.Run(script)
	if err != nil {
		t.Fatal(err)
	}
	<-program.Done()
	for _, want := range []string{"script ended (exit status 3)", "hello"} {
		if !strings.Contains(program.Err().Error(), want) {
			t.Errorf("program: %v, want %q in it", program.Err(), want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after a program's end: %v, want the cluster whole", err)
	}

	for name, pid := range c.PIDs() {
		if name != "etcd" {
			continue
		}
		process, err := os.FindProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		if err := process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "etcd ended (signal: killed)") {
		t.Errorf("Wait: %v, want an error that names etcd", err)
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	script.Log = filepath.Join(t.TempDir(), "log")
	if _, err := c.Run(script); err == nil || !strings.Contains(err.Error(), "cluster is stopped") {
		t.Errorf("Run after Stop: %v, want a refusal", err)
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
