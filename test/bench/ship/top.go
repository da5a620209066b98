// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/builder"
)

const (
	// watched is how long the view is watched.
	watched = 30 * time.Second
	// podsANode are on each node; churn is how often one comes and another goes meanwhile.
	podsANode = 2
	churn     = 200 * time.Millisecond
	// ticks are those of /proc a second.
	ticks = 100
)

// screen is what a terminal has been sent.
type screen struct {
	mu    sync.Mutex
	text  bytes.Buffer
	bytes int
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += len(p)
	s.text.Write(p)
	if s.text.Len() > 1<<16 {
		s.text.Next(s.text.Len() - 1<<15)
	}
	return len(p), nil
}

func (s *screen) shows(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), text)
}

func (s *screen) sent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// topCPU runs `slipway top` in a terminal of 80 columns beside the nodes, with pods that come and go, and returns the processor time
// it takes, in percent of a core. It needs Linux's /proc and util-linux's script.
func topCPU(ctx context.Context, b *bed.Bed, kube client.Client, o options) (percent float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = each(o.nodes*podsANode, func(i int) error { return kube.Create(ctx, onNode(fmt.Sprintf("there-%d", i), i%o.nodes)) })
	if err != nil {
		return 0, err
	}
	path, err := filepath.Abs(filepath.Join(o.binaries, "slipway"))
	if err != nil {
		return 0, err
	}
	shell := fmt.Sprintf("stty rows 24 cols 80; exec %s top --kubeconfig=%s", path, b.Cluster.Kubeconfig())
	cmd := exec.CommandContext(ctx, "script", "-qec", shell, os.DevNull)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	out := &screen{}
	cmd.Stdout, cmd.Stderr = out, out
	keyboard, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	defer keyboard.Close()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("giving slipway top a terminal: %w", err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // it is killed
	}()
	err = bed.Eventually(ctx, "slipway top to show the nodes", func(context.Context) (bool, error) {
		return out.shows(fmt.Sprintf("%d nodes", o.nodes)), nil
	})
	if err != nil {
		return 0, fmt.Errorf("%w; it shows %q", err, out.text.String())
	}
	pid, err := child(cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	before, err := spent(pid)
	if err != nil {
		return 0, err
	}
	sent, began := out.sent(), time.Now()
	if err := comeAndGo(ctx, kube, o.nodes); err != nil {
		return 0, err
	}
	took := time.Since(began)
	after, err := spent(pid)
	if err != nil {
		return 0, err
	}
	if out.sent() == sent {
		return 0, errors.New("slipway top has not drawn anything while pods came and went")
	}
	return 100 * (after - before).Seconds() / took.Seconds(), nil
}

// each does n things, several at a time.
func each(n int, do func(i int) error) error {
	const workers = 8
	errs := make([]error, workers)
	var done sync.WaitGroup
	for w := range workers {
		done.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				errs[w] = do(i)
			}
		})
	}
	done.Wait()
	return errors.Join(errs...)
}

func onNode(name string, node int) *corev1.Pod {
	pod := builder.Pod(name).CPU("500m").Memory("1Gi").On(fmt.Sprintf("node-%d", node)).Obj()
	pod.Status = corev1.PodStatus{}
	pod.Spec.TerminationGracePeriodSeconds = new(int64(0))
	return pod
}

// comeAndGo has pods come and go for a while.
func comeAndGo(ctx context.Context, kube client.Client, nodes int) error {
	var last *corev1.Pod
	for began, i := time.Now(), 0; time.Since(began) < watched; i++ {
		next := onNode(fmt.Sprintf("comes-%d", i), i%nodes)
		if err := kube.Create(ctx, next); err != nil {
			return err
		}
		if last != nil {
			if err := kube.Delete(ctx, last, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		last = next
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(churn):
		}
	}
	return nil
}

// child is the one process that another has started.
func child(pid int) (int, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, fmt.Errorf("looking for slipway top among the processes: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(raw)))
}

// spent is the processor time a process has used so far (proc_pid_stat(5): fields 14 and 15).
func spent(pid int) (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the processor time of slipway top: %w", err)
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:])) // from field 3 on: a name may have spaces
	var sum int64
	for _, i := range []int{14 - 3, 15 - 3} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the processor time of slipway top: %w", err)
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks, nil
}
